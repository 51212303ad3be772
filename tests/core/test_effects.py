"""What a record looks like after the moves of flows and of unique jobs."""

import pytest
from msgspec.structs import replace

from penstock.core import effects
from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule

QUEUE = QueueRef("t", "q")
NOW = 1_000_000
CHILD = JobRef("other", "child")
NEW = NewJob(id="a", nonce="n", task="t", payload=b"1")
BLOCKED = replace(NEW, awaits=(CHILD,))


@pytest.mark.parametrize(
    ("new", "state", "visible_at"),
    [
        (NEW, State.PENDING, None),
        (replace(NEW, delay_ms=5), State.DELAYED, NOW + 5),
        (replace(NEW, run_at=NOW + 7), State.DELAYED, NOW + 7),
        (replace(NEW, run_at=NOW), State.PENDING, None),
        (replace(NEW, run_at=NOW - 1, delay_ms=9), State.PENDING, None),
        (BLOCKED, State.BLOCKED, None),
        (replace(BLOCKED, delay_ms=5), State.BLOCKED, None),
    ],
    ids=["now", "delayed", "at a time", "at this time", "in the past", "blocked", "blocked with a delay"],
)
def test_a_new_job_begins_where_its_options_say(new: NewJob, state: State, visible_at: int | None) -> None:
    job = effects.enqueued(QUEUE, new, NOW)

    assert (job.state, job.visible_at, job.version, job.enqueued_at) == (state, visible_at, 1, NOW)


def test_a_new_job_keeps_what_it_belongs_to() -> None:
    unique = Unique("k", UniqueRule.LIVE)
    new = replace(
        NEW, unique=unique, parents=(CHILD,), child_policy=ChildPolicy.WAIT, schedule="s", instant=9, key="k"
    )
    job = effects.enqueued(QUEUE, new, NOW)

    assert (job.unique, job.parents, job.child_policy) == (unique, (CHILD,), ChildPolicy.WAIT)
    assert (job.schedule, job.instant, job.key) == ("s", 9, "k")


@pytest.mark.parametrize(
    ("new", "state", "visible_at"),
    [
        (BLOCKED, State.PENDING, None),
        (replace(BLOCKED, delay_ms=50), State.DELAYED, NOW + 150),
        (replace(BLOCKED, run_at=NOW + 120), State.DELAYED, NOW + 120),
        (replace(BLOCKED, run_at=NOW + 100), State.PENDING, None),
    ],
    ids=["at once", "delay", "run at", "run at this time"],
)
def test_the_wait_begins_with_the_unblocking(new: NewJob, state: State, visible_at: int | None) -> None:
    job = effects.enqueued(QUEUE, new, NOW)
    after = effects.unblocked(job, NOW + 100, fails=False, child=CHILD)

    assert (after.state, after.visible_at, after.version) == (state, visible_at, 2)
    assert (after.ended_at, after.reason) == (None, None)


def test_a_parent_that_fails_names_the_child() -> None:
    job = effects.enqueued(QUEUE, replace(BLOCKED, delay_ms=50), NOW)
    after = effects.unblocked(job, NOW + 100, fails=True, child=CHILD)

    assert (after.state, after.reason, after.ended_at) == (State.FAILED, "CHILD_FAILED", NOW + 100)
    assert after.error == "child other/child ended without success"
    assert (after.visible_at, after.attempts, after.version) == (None, 0, 2)


@pytest.mark.parametrize(
    ("newer", "state", "visible_at"),
    [
        (NEW, State.PENDING, None),
        (replace(NEW, delay_ms=5), State.DELAYED, NOW + 105),
        (replace(NEW, run_at=NOW + 300), State.DELAYED, NOW + 300),
        (replace(NEW, run_at=NOW), State.PENDING, None),
    ],
    ids=["now", "delay", "run at", "in the past"],
)
@pytest.mark.parametrize("delay_ms", [0, 1_000], ids=["pending", "delayed"])
def test_newer_work_takes_the_place_and_waits_anew(
    delay_ms: int, newer: NewJob, state: State, visible_at: int | None
) -> None:
    job = effects.enqueued(QUEUE, replace(NEW, delay_ms=delay_ms), NOW)
    after = effects.replaced(job, replace(newer, id="b", nonce="m", payload=b"2", priority=9), NOW + 100)

    assert (after.state, after.visible_at, after.payload) == (state, visible_at, b"2")
    assert after == replace(job, state=state, visible_at=visible_at, payload=b"2", version=2), (
        "something else changed"
    )
