"""The page of rules says what is shown, and what the code says."""

import inspect
from collections.abc import Callable
from typing import Any, Final

import pytest

from penstock.client import flow_plan
from penstock.core import decide, effects, events, job, limits, payload, retry
from penstock.core.cron import catch_up, spec
from penstock.core.states import State
from penstock.core.transitions import TABLE, Row
from penstock.maintenance import pruner, time_keeper
from penstock.stores import bounds
from penstock.tasks import execution, flow
from penstock.worker import options
from penstock.worker.executors import output, stopping
from penstock.worker.worker import Worker
from tests.docs.pages import ROOT, faults, rules, section

PAGE: Final = ROOT / "docs" / "reference" / "semantics.md"
HERE: Final = "tests/docs/test_semantics.py"
TEXT: Final = PAGE.read_text("utf-8")


def test_every_rule_is_numbered_once_and_names_tests_that_exist() -> None:
    assert len(rules(TEXT)) > 50
    assert faults(TEXT) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- **S1.1** True.", "S1.1 names no test"),
        (
            "- **S1.1** True.\n  — shown by `tests/nowhere.py::test_it`",
            "there is no tests/nowhere.py::test_it",
        ),
        (f"- **S1.1** True.\n  — shown by `{HERE}::test_that_is_not_there`", "test_that_is_not_there"),
        (f"- **S1.1** True.\n  — shown by `{HERE}::faults`", "there is no"),
        ("- **S1.1** One.\n- **S1.1** Two.", "S1.1 stands there twice"),
        ("- **S1.2** One.\n- **S1.1** Two.", "order"),
    ],
    ids=["no test", "no file", "no such test", "not a test", "twice", "order"],
)
def test_a_page_with_a_fault_is_found_out(text: str, fault: str) -> None:
    assert any(fault in each for each in faults(text))


def test_a_rule_that_names_a_test_passes() -> None:
    name = test_a_rule_that_names_a_test_passes.__name__
    text = f"Words.\n\n- **S1.1** True, and\n  more.\n\n  | a | b |\n\n  — shown by `{HERE}::{name}`\n\nMore."

    assert faults(text) == []
    assert [(rule.number, rule.tests) for rule in rules(text)] == [("S1.1", [(HERE, name)])]


def test_the_moves_on_the_page_are_those_of_the_table() -> None:
    assert section(TEXT, "moves") == moves_table()


def test_the_states_on_the_page_are_those_of_the_code() -> None:
    for state in State:
        kind = "live" if state.is_live else "ended"
        assert any(
            line.startswith(f"| `{state}` |") and line.endswith(f"| {kind} |") for line in TEXT.splitlines()
        )


def test_the_reasons_on_the_page_are_those_of_the_code() -> None:
    reasons = {value for name, value in vars(decide).items() if name.isupper() and isinstance(value, str)}

    assert {
        line.split("`")[1] for line in TEXT.splitlines() if line.startswith("| `") and line[3].isupper()
    } == (reasons)


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    assert section(TEXT, "numbers") == numbers_table()


def moves_table() -> str:
    """The table of moves as it stands on the page."""
    head = ["| move | from | to | rule | guards | cancels |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *map(_line, TABLE.values())])


def _line(row: Row) -> str:
    sources = ", ".join(state for state in State if state in row.sources) or "–"
    targets = ", ".join(row.targets) or "gone"
    guards = ", ".join(sorted(row.guards)) or "–"
    return (
        f"| `{row.move}` | {sources} | {targets} | {row.rule} | {guards} | {'yes' if row.cancels else ''} |"
    )


def numbers_table() -> str:
    """The table of numbers as it stands on the page."""
    worker = _defaults(Worker.__init__)
    policy = job.Options()
    (limit,) = {
        bounds.PROMOTE_LIMIT,
        bounds.RECOVER_LIMIT,
        bounds.PRUNE_LIMIT,
        bounds.RELAY_LIMIT,
    }
    rows = [
        ("executions per drive", policy.max_attempts),
        ("backoff base, cap", f"{policy.backoff.base_ms / 1000:g} s, {policy.backoff.cap_ms / 1000:g} s"),
        ("longest delay a handler may name", f"{retry.MAX_DELAY_MS // job.DAY_MS} days"),
        ("execution timeout", f"{policy.timeout_ms / 1000:g} s"),
        ("retention of ended jobs", f"{policy.retention_ms // 3_600_000} h"),
        ("default tier", job.DEFAULT_PRIORITY),
        ("lease", f"{worker['lease']:g} s"),
        ("shortest, longest lease", f"{options.MIN_LEASE:g} s, {options.MAX_LEASE:g} s"),
        ("renewed every", "1/3 of the lease"),
        ("slots of a worker", worker["concurrency"]),
        ("poll", f"{worker['poll']:g} s"),
        ("drain on shutdown", f"{worker['shutdown_timeout']:g} s"),
        (
            "a process is told to stop, gets SIGTERM, is killed",
            f"at 0, {stopping.TERM_AFTER:g}, {stopping.TERM_AFTER + stopping.KILL_AFTER:g} s",
        ),
        (
            "a process is replaced after",
            f"{execution.RECYCLE_JOBS} jobs, or {execution.RECYCLE_BYTES >> 30} GiB more memory",
        ),
        (
            "output of a process",
            f"{output.PASSED_ON >> 20} MiB per job passed on, {output.TAIL} bytes kept with its death",
        ),
        ("tick", f"1/2 of the lease; {time_keeper.TICK:g} s in `penstock scheduler`"),
        ("every queue is visited for upkeep", f"once in {time_keeper.SWEEP:g} s, whatever is due"),
        ("promoted, recovered, pruned, carried over per call", f"{limit} each"),
        ("weight of a key", f"1 to {limits.MAX_WEIGHT}"),
        ("flow", f"{flow.MOST_JOBS} jobs, {flow_plan.MOST_BYTES >> 20} MiB of arguments"),
        ("interval of a schedule", f"1 s to {spec.MAX_EVERY_MS // job.DAY_MS} days"),
        ("an instant is missed after", f"{catch_up.GRACE_MS // 1000} s, where nothing is caught up"),
        ("instants caught up by `all`", f"{catch_up.DEFAULT_LIMIT}; {catch_up.MAX_LIMIT} at most"),
        ("one call to a store", f"{bounds.CHUNK_JOBS} jobs or {bounds.CHUNK_BYTES >> 20} MiB"),
        ("payload", f"{payload.PAYLOAD_LIMIT >> 20} MiB, {payload.MAX_DEPTH} levels"),
        ("progress value", f"{payload.PROGRESS_LIMIT >> 10} KiB"),
        ("progress event", f"one per {effects.PROGRESS_EVERY_MS // 1000} s"),
        (
            "error kept",
            f"{_defaults(decide.clean_error)['limit']} characters; {events.ERROR_CHARS} in events",
        ),
        (
            "events kept by a worker's trimming",
            f"{pruner.EVENTS_KEPT} per queue, {pruner.EVENTS_AGE / 86_400:g} days",
        ),
        ("events kept for readers that are behind", f"{pruner.EVENTS_HELD} per queue"),
        ("lease of a reader of events", f"{bounds.READER_LEASE_MS // job.DAY_MS} days"),
    ]
    return "\n".join(
        ["| what | value |", "| --- | --- |", *(f"| {what} | {value} |" for what, value in rows)]
    )


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


if __name__ == "__main__":
    text = TEXT
    for name, table in (("moves", moves_table()), ("numbers", numbers_table())):
        start, end = text.index("-->\n", text.index(f"<!-- {name}")) + 4, text.index(f"<!-- /{name} -->")
        text = f"{text[:start]}{table}\n{text[end:]}"
    PAGE.write_text(text, "utf-8")
