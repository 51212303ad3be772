"""Tests that are about a part of the contract run on the stores that have it."""

import pytest

from tests.conformance.stores import STORES, Kind, Part


def kinds_having(*parts: Part) -> list[Kind]:
    """The kinds of stores that have all these parts."""
    return [kind for kind in STORES if set(parts) <= kind.parts]


def having(*parts: Part) -> pytest.MarkDecorator:
    """Run a test on the stores that have these parts."""
    kinds = kinds_having(*parts)
    return pytest.mark.parametrize("kind", kinds, ids=[kind.name for kind in kinds], indirect=True)
