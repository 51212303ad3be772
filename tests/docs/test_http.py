"""The page about HTTP names every route, and the types of every problem."""

import inspect
import re
from typing import Final

from penstock.service import errors, problems
from penstock.service.errors import ServiceError
from penstock.service.routes import ROUTES
from tests.docs.pages import ROOT, section

PAGE: Final = ROOT / "docs" / "reference" / "http.md"


def test_every_route_is_on_its_page() -> None:
    assert section(PAGE.read_text("utf-8"), "routes") == routes_part()


def test_every_type_of_a_problem_is_on_its_page() -> None:
    told = set(re.findall(r"`([a-z-]+)`", section_of("Problems")))
    own = {
        each.slug
        for each in vars(errors).values()
        if inspect.isclass(each) and issubclass(each, ServiceError) and each is not ServiceError
    }
    foreign = {slug for _, slug, _ in problems._KINDS.values()}

    assert own | foreign <= told | {"timeout"}


def section_of(title: str) -> str:
    """What stands under a heading of the page."""
    return PAGE.read_text("utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


def routes_part() -> str:
    """The table of routes as it stands on the page."""
    rows = []
    for row in ROUTES:
        if row.noun == "store":
            continue
        words = (inspect.getdoc(row.handler) or "").partition("\n")[0]
        rows.append(f"| `{row.method} {row.path}` | {f'`{row.verb}`' if row.verb else ''} | {words} |")
    return "\n".join(["| route | verb | |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    start, end = text.index("-->\n", text.index("<!-- routes")) + 4, text.index("<!-- /routes -->")
    PAGE.write_text(f"{text[:start]}{routes_part()}\n{text[end:]}", "utf-8")
