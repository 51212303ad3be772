"""The pages for contributors name files that are there."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT

PAGES: Final = ("ARCHITECTURE.md", "CONTRIBUTING.md")
SOURCE: Final = ROOT / "src" / "penstock"
_PATH: Final = re.compile(r"`([\w./<>-]+(?:\.(?:py|sql|lua|md|toml|in)|/))`")


def _is_there(named: str, listed: frozenset[str]) -> bool:
    if "<kind>" in named:
        return any(_is_there(named.replace("<kind>", kind.name), listed) for kind in _kinds())
    return (ROOT / named).exists() or (SOURCE / named).exists() or f"/{named}".rstrip("/") in listed


def _kinds() -> list[Path]:
    return [each for each in (SOURCE / "stores").iterdir() if each.is_dir()]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_for_contributors_names_is_there(page: str) -> None:
    """In the repository, below the package, or by its last names anywhere in it."""
    paths = [f"/{path.relative_to(ROOT)}" for path in (*SOURCE.rglob("*"), *(ROOT / "tests").rglob("*"))]
    listed = frozenset(path[at:] for path in paths for at, sign in enumerate(path) if sign == "/")
    named = set(_PATH.findall((ROOT / page).read_text("utf-8")))

    assert len(named) > 20
    assert sorted(each for each in named if not _is_there(each, listed)) == []
