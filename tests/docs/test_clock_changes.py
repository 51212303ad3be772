"""The table of the days when clocks change says what happens on them."""

import re
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from penstock.core.cron.instants import instants
from penstock.core.cron.spec import Cron
from tests.docs.pages import ROOT

BERLIN: Final = "Europe/Berlin"
TEXT: Final = (ROOT / "docs" / "how-to" / "schedules.md").read_text("utf-8")
ROWS: Final = re.findall(r"^\| `([^`(]+ \* \*)` \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)
DAYS: Final = ("2026-03-29", "2026-10-25")


def runs(expression: str, day: str) -> list[str]:
    """The times on the wall at which it runs on that day."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(BERLIN))
    end = start + timedelta(days=1)
    first, last = (round(each.timestamp() * 1000) - 1 for each in (start, end))
    found = instants(Cron.of(expression, BERLIN), first, last, 100)
    return [f"{datetime.fromtimestamp(each / 1000, ZoneInfo(BERLIN)):%H:%M}" for each in found]


@pytest.mark.parametrize(("expression", "march", "october"), ROWS)
def test_a_row_says_when_it_runs(expression: str, march: str, october: str) -> None:
    for day, cell in zip(DAYS, (march, october), strict=True):
        said, found = re.findall(r"\d\d:\d\d", cell), runs(expression, day)
        assert said == (found[: len(said)] if "…" in cell else found)


def test_the_table_has_all_sorts_of_expressions() -> None:
    assert len(ROWS) == 5
