"""Tests that are about a part of the contract run on the stores that have it."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from penstock.testing.conformance.parts import Part
from tests.conformance.stores import STORES, Kind, may_be_missing

TOOK_PART: Final = pytest.StashKey[dict[str, int]]()
"""How many tests ran on each kind of store."""


def kinds_having(*parts: Part) -> list[Kind]:
    """The kinds of stores that have all these parts."""
    return [kind for kind in STORES if set(parts) <= kind.parts]


def having(*parts: Part) -> pytest.MarkDecorator:
    """Run a test on the stores that have these parts."""
    return on(kinds_having(*parts))


def shared(*parts: Part) -> pytest.MarkDecorator:
    """Run a test on the stores that have these parts and that several processes can use."""
    return on([kind for kind in kinds_having(*parts) if kind.is_shared])


def served(*parts: Part, only_shared: bool = False) -> pytest.MarkDecorator:
    """Run a test on the stores that have these parts and that a service can stand on: not on another one."""
    kinds = [kind for kind in kinds_having(*parts) if kind.name != "remote"]
    return on([kind for kind in kinds if kind.is_shared or not only_shared])


def on(kinds: Sequence[Kind]) -> pytest.MarkDecorator:
    """Run a test on these kinds of stores."""
    return pytest.mark.parametrize("kind", kinds, ids=_names(kinds), indirect=True)


def kind_having(*parts: Part) -> Any:
    """The fixture `kind`: each kind of store that has these parts; a missing one fails."""
    return kind_among(kinds_having(*parts))


def kind_among(kinds: Sequence[Kind]) -> Any:
    """The fixture `kind`: each of these; a missing one fails."""

    @pytest.fixture(name="kind", params=kinds, ids=_names(kinds))
    def found(request: pytest.FixtureRequest) -> Kind:
        kind: Kind = request.param
        why = kind.missing()
        if why is not None:
            if may_be_missing():
                pytest.skip(f"no {kind.name}: {why}")
            pytest.fail(f"no {kind.name}: {why}", pytrace=False)
        counts = request.config.stash[TOOK_PART]
        counts[kind.name] = counts.get(kind.name, 0) + 1
        return kind

    return found


def _names(kinds: Sequence[Kind]) -> list[str]:
    return [kind.name for kind in kinds]
