"""On random histories, honest and spoiled, the audit and the checker of the core say the same."""

import random
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock.core.events import Event
from penstock.core.history import Rule
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import LIVE, State
from penstock.spark.audit import Verdict
from tests.core.histories import random_history
from tests.spark.audited import Case, Found, audit_all, covered

HONEST = range(60)
SPOILED = range(1_000, 1_120)
CUT = range(2_000, 2_030)
STEPS = 80
COUNTS = (
    "events",
    "unknown",
    "jobs",
    "enqueued",
    "completed",
    "failed",
    "dead",
    "cancelled",
    "deleted",
    "removed",
    "claimed",
    "retried",
    "recovered",
    "redriven",
)


def honest(seed: int) -> Case:
    """A random history as it was."""
    history = random_history(seed, STEPS)
    return Case(history.events, history.live, history.limits)


def spoiled(seed: int) -> Case:
    """One with up to three faults somewhere."""
    chance = random.Random(seed)
    case = honest(seed)
    events = list(case.events)
    for _ in range(chance.randint(1, 3)):
        _spoil(events, chance)
    live = {
        job: chance.choice(list(State)) if chance.random() < 0.02 else state
        for job, state in (case.live or {}).items()
    }
    return Case(events, {job: state for job, state in live.items() if chance.random() > 0.02}, case.limits)


def cut(seed: int) -> Case:
    """One whose beginning was trimmed: the store has jobs of which it says nothing."""
    chance = random.Random(seed)
    starts: dict[QueueRef, int] = {}
    kept: list[Event] = []
    whole = honest(seed)
    for event in whole.events:
        first = starts.setdefault(QueueRef(event.tenant, event.queue), chance.randint(2, 40))
        if event.seq >= first:
            kept.append(event)
    return Case(kept, whole.live, starts=starts)


def _spoil(events: list[Event], chance: random.Random) -> None:
    at = chance.randrange(len(events))
    match chance.choice(["drop", "again", "edit", "edit", "edit", "edit"]):
        case "drop":
            del events[at]
        case "again":
            events.insert(at, events[at])
        case _:
            events[at] = msgspec.structs.replace(events[at], **_other(events[at], chance))


def _other(event: Event, chance: random.Random) -> dict[str, Any]:
    """Something else for one field that the event has."""
    told = [
        name
        for name in (
            "version",
            "drive",
            "delivery",
            "attempt",
            "fence",
            "max_attempts",
            "visible_at",
            "deadline",
        )
        if getattr(event, name) is not None
    ]
    # Numbers begin with one: the checker takes none for not told.
    choices: list[dict[str, Any]] = [
        {name: value + (chance.choice([-1, 1]) if value > 1 else 1)}
        for name, value in ((name, getattr(event, name)) for name in told)
    ]
    choices += [{"target": state} for state in chance.sample(list(State), 2)]
    choices += [
        {"source": state} for state in chance.sample(list(State), 2) if event.move is not Move.ENQUEUE
    ]
    choices += [{"at": event.at + chance.choice([-500, 500])}, {"move": "teleport"}, {"key": None}]
    choices += [{"worker": "w9"}] if event.worker is not None else []
    choices += [{"idempotency_key": "key-1"}] if event.move is Move.ENQUEUE else []
    return chance.choice(choices)


@pytest.fixture(scope="module")
def cases() -> dict[int, Case]:
    """All of them, by seed."""
    made = {seed: honest(seed) for seed in HONEST}
    made |= {seed: spoiled(seed) for seed in SPOILED}
    return made | {seed: cut(seed) for seed in CUT}


@pytest.fixture(scope="module")
def audited(spark: SparkSession, cases: dict[int, Case]) -> tuple[Verdict, list[Found]]:
    return audit_all(spark, list(cases.values()))


@pytest.fixture(scope="module")
def found(audited: tuple[Verdict, list[Found]], cases: dict[int, Case]) -> dict[int, Found]:
    return dict(zip(cases, audited[1], strict=True))


def test_the_audit_counts_what_the_checker_counts(
    audited: tuple[Verdict, list[Found]], cases: dict[int, Case]
) -> None:
    ours, theirs = audited[0], [case.by_checker() for case in cases.values()]

    assert {name: getattr(ours, name) for name in COUNTS} == {
        name: sum(getattr(each, name) for each in theirs) for name in COUNTS
    }
    assert ours.live == {state: sum(each.live[state] for each in theirs) for state in LIVE}


def test_honest_histories_are_clean(found: dict[int, Found]) -> None:
    assert {seed: found[seed] for seed in HONEST if found[seed]} == {}


def test_logs_that_were_trimmed_are_clean_from_where_they_start(found: dict[int, Found]) -> None:
    assert {seed: found[seed] for seed in CUT if found[seed]} == {}


def test_the_audit_finds_in_spoiled_histories_what_the_checker_finds(
    found: dict[int, Found], cases: dict[int, Case]
) -> None:
    """A claim that is too fast makes those after it too fast as well: the checker names the first."""
    differ = {}
    for seed in SPOILED:
        ours, theirs = found[seed], covered(cases[seed].by_checker())
        paced = {each for each in ours - theirs if each[0] in {Rule.RATE, Rule.KEY_RATE}}
        if ours - paced != theirs:
            differ[seed] = (ours - theirs, theirs - ours)

    assert differ == {}
    assert sum(bool(found[seed]) for seed in SPOILED) > len(SPOILED) * 0.8
