"""`jobs list`, `retry`, `cancel` and `delete` by filters: the same ones as for dead jobs, on every store."""

import pytest

from penstock.core.moves import Fault
from tests.cli.conftest import MAIL, Shell, Terminal
from tests.conformance.having import shared

pytestmark = shared()


@pytest.fixture
def some(shell: Shell) -> Shell:
    """Jobs that failed in two ways, one that is dead, and two that wait, with keys."""
    shell.enqueue("a", "b", key="one")
    shell.settle("fail", 2)
    shell.enqueue("c", key="two", task="draw")
    shell.settle("fail", fault=Fault("TIMEOUT", "Timeout: 3 s", "aaa"))
    shell.dead("d")
    shell.enqueue("e", key="one")
    shell.enqueue("f", key="two", delay_ms=60_000)
    return shell


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (["--state", "failed"], ["a", "b", "c"]),
        (["--state", "failed", "--where", "error like 'Timeout%'"], ["c"]),
        (["--state", "failed,dead", "--reason", "ERROR"], ["a", "b", "d"]),
        (["--key", "one"], ["a", "b", "e"]),
        (["--key", "two", "--state", "failed"], ["c"]),
        (["--where", "state = 'delayed' or task = 'draw'"], ["c", "f"]),
        (["--since", "1h", "--key", "two"], ["c", "f"]),
        (["--since", "2099-01-31T12:00:00Z"], []),
        (["--since", "2020-01-31T12:00", "--state", "dead"], ["d"]),
    ],
)
def test_jobs_are_listed_by_the_same_filters_as_dead_ones(
    some: Shell, filters: list[str], ids: list[str]
) -> None:
    assert sorted(job["id"] for job in some.json_lines("jobs", "list", *filters)) == ids


def test_pages_of_a_condition_go_on_where_the_last_one_ended(some: Shell) -> None:
    condition = ["jobs", "list", "--queue", "mail", "--limit", "2", "--where", "state = 'failed'"]
    first = some.json_lines(*condition)
    second = some.json_lines(*condition, "--after", first[-1]["cursor"])

    assert [len(first), len(second)] == [2, 1]
    assert sorted(job["id"] for job in first + second) == ["a", "b", "c"]


def test_failed_jobs_are_counted_by_kind(some: Shell) -> None:
    groups = some.json_lines("jobs", "list", "--state", "failed", "--group")

    assert [(each["count"], each["task"], each["fingerprint"]) for each in groups] == [
        (2, "send", "f00"),
        (1, "draw", "aaa"),
    ]


def test_failed_jobs_are_retried_by_a_condition(some: Shell) -> None:
    failed = ["--state", "failed", "--where", "error like 'ValueError%'"]

    assert some.json("jobs", "retry", *failed, "--dry-run")["count"] == 2
    assert some.json("jobs", "retry", *failed) == {"redriven": 2, "refused": 0}
    claims = some.store(lambda store: store.moves.claim(MAIL, worker="w1", limit=9, lease_ms=30_000))
    assert [job.id for job in claims.jobs] == ["e", "a", "b"]


def test_all_that_failed_or_died_is_retried_only_after_a_question(some: Shell) -> None:
    assert some("jobs", "retry") == 2
    assert "Run 4 jobs again? Standard input is no terminal to ask at: use --yes" in some.err
    assert some.json("jobs", "retry", "--yes")["redriven"] == 4


def test_waiting_jobs_are_cancelled_and_failed_ones_deleted_by_filters(
    some: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert some.json("jobs", "cancel", "--key", "two", "--yes")["cancelled"] == 1
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert some("jobs", "delete", "--state", "failed", "--where", "key = 'one'") == 0
    assert some.err == "Delete 2 jobs for good? [y/N]: "
    assert some.out == "2 jobs deleted\n"
    left = {job["id"]: job["state"] for job in some.json_lines("jobs", "list")}
    assert left == {"c": "failed", "d": "dead", "e": "pending", "f": "cancelled"}
    assert some.json_lines("jobs", "delete", "c", "d")[0]["applied"] is True


def test_a_running_job_is_asked_to_stop_and_not_called_cancelled(some: Shell) -> None:
    some.enqueue("g")
    some.claim(2)
    waiting = some.json("jobs", "cancel", "--yes", "--dry-run")["count"] - 2

    assert some("jobs", "cancel", "--yes") == 0
    assert some.out == f"{waiting} jobs cancelled, 2 asked to stop\n"
    assert some.json("jobs", "cancel", "--yes") == {"cancelled": 0, "asked_to_stop": 2, "refused": 0}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["list", "--since", "soon"], "--since: found 'soon', wanted a time such as 2026-01-31T12:00"),
        (["list", "--where", "colour = 1"], "--where: found 'colour = 1', wanted an SQL condition over id"),
        (["retry", "--where", "1 = "], "--where: found '1 = ', wanted an SQL condition over id"),
        (["retry", "--state", "pending"], "--state: found 'pending', wanted some of failed, dead, cancelled"),
        (["cancel", "--state", "dead"], "--state: found 'dead', wanted some of blocked, pending"),
        (["delete", "--yes"], "--state: found None, wanted ids of jobs, or the states"),
        (["delete", "--state", "active"], "--state: found 'active', wanted some of"),
        (["retry", "a", "--key", "one"], "either ids or options that select jobs, not both"),
    ],
)
def test_a_filter_that_is_wrong_is_named(some: Shell, arguments: list[str], says: str) -> None:
    assert some("jobs", *arguments) == 2
    assert says in some.err
