"""The documentation's code is code, its links lead somewhere, and what it says can be run."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.docs.pages import ROOT, Block, blocks, pages
from tests.docs.running import check_output, is_run, run_page
from tests.kit.waiting import SLOWNESS

PAGES: Final = pages()
BLOCKS: Final = [block for page in PAGES for block in blocks(page)]
LANGUAGES: Final = frozenset(
    {"python", "sh", "text", "toml", "json", "sql", "markdown", "ini", "http", "yaml", ""}
)
_LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.language == "python"], ids=str)
def test_python_in_the_documentation_is_python(block: Block) -> None:
    compile(block.code, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.language in ("toml", "json")], ids=str)
def test_settings_and_records_in_the_documentation_can_be_read(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.code)
    else:
        msgspec.json.decode(block.code)


def test_every_block_says_what_it_is() -> None:
    assert {block.language for block in BLOCKS} <= LANGUAGES


@pytest.mark.timeout(400 * SLOWNESS)
@pytest.mark.parametrize(
    "page",
    [each for each in PAGES if name_of(each) != "README.md" and any(map(is_run, blocks(each)))],
    ids=name_of,
)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    run_page(blocks(page), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for link in _LINK.finditer(text):
        target, _, anchor = link["target"].partition("#")
        if "://" in target:
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{name_of(page)} points to {target}"
        if anchor and place.suffix == ".md":
            assert anchor in _anchors(place), f"{name_of(page)} points to {target}#{anchor}"


def _anchors(page: Path) -> set[str]:
    titles = (each["title"] for each in _HEADING.finditer(page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_stands_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / link["target"].partition("#")[0]).resolve()
        for link in _LINK.finditer(index.read_text("utf-8"))
    }
    own = {page for page in PAGES if page.is_relative_to(ROOT / "docs") and page != index}
    numbered = {page for page in own if page.parent.name == "decisions" and page.name != "README.md"}

    assert own - numbered <= linked


def test_output_that_was_not_printed_is_noticed() -> None:
    block = Block(ROOT / "README.md", 1, "text output", "one … three\nfour\n")
    check_output(block, "zero\none   two three\nfour\n")

    with pytest.raises(AssertionError, match="four"):
        check_output(block, "four\none two three\n")
