"""SQL conditions over jobs: what they may cost, and functions that are not SQLite's own."""

import sqlite3
import time
from contextlib import suppress

import pytest

from penstock.client.where import Where
from penstock.client.where_functions import add_text_functions
from penstock.core.effects import enqueued
from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.testing.conformance.arrange import new_job

JOB = enqueued(QueueRef("acme", "mail"), new_job("a"), 0)
_LONG = "printf('%.*c', 4000000, 'a')"
_HALF = "printf('%.*c', 1000000, 'a')"


@pytest.mark.parametrize(
    "condition",
    [
        f"instr({_LONG}, {_HALF} || 'b')",
        f"replace({_LONG}, {_HALF} || 'b', '')",
        f"trim({_LONG}, printf('%.*c', 1000000, 'b') || 'a')",
        f"{_LONG} like '%' || printf('%.*c', 49000, 'a') || 'b'",
        f"{_LONG} glob '*' || printf('%.*c', 49000, 'a') || 'b'",
        f"replace({_LONG}, 'a', {_LONG})",
    ],
)
def test_no_function_of_a_condition_takes_long_in_one_step(condition: str) -> None:
    """SQLite looks at the time between its steps, and each of these is one."""
    began = time.thread_time()
    where = Where(condition, max_seconds=0.2)
    made = time.thread_time() - began
    with suppress(OptionError):
        where.matching([JOB], 0)

    assert made < 0.5
    assert time.thread_time() - began < 3


def test_a_condition_is_checked_and_not_run_when_it_is_made() -> None:
    """Whoever makes one may be an event loop: a constant is worked out when jobs are looked at."""
    where = Where("replace('aa', 'a', printf('%.*c', 3000000, 'b')) = id")

    with pytest.raises(OptionError, match="replace"):
        where.matching([JOB], 0)


_CALLS = [
    "instr('Straße', 'ße')",
    "instr('abc', '')",
    "instr('abc', 'd')",
    "instr(x'0102', x'02')",
    "instr(12345, 34)",
    "instr(null, 'a')",
    "instr('a', null)",
    "replace('banana', 'an', 'o')",
    "replace('banana', '', 'o')",
    "replace(121, 1, 3)",
    "replace('a', null, 'b')",
    "trim('  a b ')",
    "ltrim('  a ')",
    "rtrim('  a ')",
    "trim('xyaxy', 'xy')",
    "ltrim('xyaxy', 'yx')",
    "rtrim('xyaxy', 'yx')",
    "trim('abc', '')",
    "trim('aaa', 'a')",
    "trim(null)",
    "trim('a', null)",
]


@pytest.mark.parametrize("call", _CALLS)
def test_functions_that_search_text_answer_as_those_of_sqlite(call: str) -> None:
    """Only the time that they take differs."""
    own, other = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    add_text_functions(other, 1000)
    found = [base.execute(f"SELECT {call}, typeof({call})").fetchall() for base in (own, other)]
    for base in (own, other):
        base.close()

    assert found[0] == found[1]
