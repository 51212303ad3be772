"""`jobs explain` says for every state why a job is not running."""

import re

import pytest

from penstock.core.events import Event
from penstock.core.job import Job, Options
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.explain.sentences import JobFacts, explain
from penstock.stores.values import Pause
from tests.cli.conftest import MAIL, Shell


def said(shell: Shell, job: str) -> str:
    because = shell.json("jobs", "explain", f"mail/{job}")["because"]
    assert shell("jobs", "explain", job) == 0
    assert shell.out.count("\n") == len(because)
    return "\n".join(because)


def test_a_pending_job_says_how_many_are_ahead_and_that_nobody_works(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")

    assert "next in line in queue 'mail'" in said(shell, "a")
    assert "2 jobs ahead in queue 'mail'" in said(shell, "c")
    assert "no worker holds a lease in this queue just now" in said(shell, "c")


def test_a_job_that_waits_for_long_says_that_nobody_seems_to_be_running() -> None:
    text = "\n".join(explain(JobFacts(job=job(State.PENDING, enqueued_at=0), now=60_000)))

    assert "no worker seems to be running" in text
    assert "at least 1 min old" in text


def test_a_job_that_no_live_worker_serves_or_knows_says_so(shell: Shell) -> None:
    shell.enqueue("a")
    shell.enqueue("b", task="digest", delay_ms=60_000)
    shell.register_worker("elsewhere")
    unserved = said(shell, "a"), said(shell, "b")
    shell.register_worker("mail")
    served = said(shell, "a"), said(shell, "b")

    assert all("no live worker serves queue 'mail'" in text for text in unserved)
    assert "no live worker" not in served[0]
    assert "no live worker of queue 'mail' knows task 'digest'" in served[1]


def test_a_pending_job_says_when_workers_are_busy(shell: Shell) -> None:
    shell.enqueue("a", "b")
    shell.claim()

    assert "workers are busy: 1 lease is held" in said(shell, "b")


def test_a_paused_queue_is_the_reason(shell: Shell) -> None:
    shell.enqueue("a", "b")
    assert shell("queues", "pause", "mail", "--reason", "provider down", "--by", "ada", "--for", "10m") == 0

    text = said(shell, "b")

    assert text.startswith("waiting: queue 'mail' is paused since ")
    assert "by ada until " in text
    assert '("provider down"), 1 job ahead' in text


def test_a_pause_that_is_over_is_no_reason() -> None:
    facts = JobFacts(job=job(State.PENDING), now=10, pause=Pause(at=0, until=5))

    assert "paused" not in "\n".join(explain(facts))


def test_a_scheduled_job_says_when(shell: Shell) -> None:
    shell.enqueue("a", delay_ms=12_900)

    text = said(shell, "a")

    assert "waiting: delayed until" in text
    assert "(in 12 s)" in text
    assert "because it was scheduled for then" in text


def test_a_retried_job_says_after_which_error(shell: Shell) -> None:
    shell.enqueue("a")
    shell.settle("retry")

    text = said(shell, "a")

    assert "because it is retried after an error" in text
    assert "1 of 4 attempts are used; the last ended with ERROR: ValueError: boom 7" in text
    assert "Traceback" not in text


def test_a_snoozed_job_says_so(shell: Shell) -> None:
    shell.enqueue("a")
    shell.settle("snooze")

    assert "because its handler snoozed it" in said(shell, "a")


def test_a_released_job_says_who_gave_it_back(shell: Shell) -> None:
    shell.enqueue("a")
    shell.settle("release")

    assert "worker w1 released it unfinished" in said(shell, "a")


def test_a_due_job_waits_for_a_tick() -> None:
    text = "\n".join(explain(JobFacts(job=job(State.DELAYED, visible_at=1_000), now=61_000)))

    assert "it becomes pending with the next claim or tick; no worker seems to be running" in text


def test_a_running_job_says_where_and_until_when(shell: Shell) -> None:
    shell.enqueue("a")
    shell.claim()

    text = said(shell, "a")

    assert text.startswith("running: worker w1 has had it since ")
    assert "its lease ends in 29 s unless renewed" in text


def test_a_running_job_that_was_cancelled_says_so(shell: Shell) -> None:
    shell.enqueue("a")
    shell.claim()
    assert shell("jobs", "cancel", "a") == 0
    assert shell.out == "mail/a is active and asked to stop\n"

    assert "a cancel was requested" in said(shell, "a")


def test_a_lease_that_ran_out_waits_for_recovery(shell: Shell) -> None:
    shell.enqueue("a")
    shell.claim()
    shell.store(lambda store: store.clock.advance_clock(45_000))

    text = said(shell, "a")

    assert re.match(r"waiting for recovery: worker w1 let its lease run out \d+ s ago", text)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("complete", "ended: completed at "),
        ("fail", "(ERROR): its handler said not to try again"),
        ("bury", "(ERROR) after 1 of 4 attempts"),
    ],
)
def test_an_ended_job_says_how_and_why(shell: Shell, how: str, text: str) -> None:
    shell.enqueue("a")
    shell.settle(how)

    explained = said(shell, "a")

    assert text in explained
    if how != "complete":
        assert "the last error was: ValueError: boom 7" in explained
        assert "to run it again: penstock jobs retry mail/a" in explained


def test_a_cancelled_job_says_so_and_a_redriven_one_too(shell: Shell) -> None:
    shell.enqueue("a")
    assert shell("jobs", "cancel", "mail/a") == 0

    assert "ended: cancelled at" in said(shell, "a")
    assert shell("jobs", "retry", "mail/a") == 0
    assert "this is drive 2" in said(shell, "a")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"delivery": 1}, "snoozed"),
        ({"delivery": 1, "attempts": 1, "reason": "ERROR"}, "after an error"),
        ({"delivery": 1, "attempts": 1, "reason": "LEASE_EXPIRED"}, "lease expired"),
        ({}, "scheduled"),
    ],
)
def test_without_the_log_the_record_tells_why_a_job_is_delayed(fields: dict[str, object], text: str) -> None:
    assert text in explain(JobFacts(job=job(State.DELAYED, visible_at=100, **fields), now=1))[0]


def test_the_log_knows_better_than_the_record() -> None:
    snoozed = Event(v=1, tenant="default", queue="mail", seq=1, move=Move.SNOOZE, at=1, job="a")
    facts = JobFacts(job=job(State.DELAYED, visible_at=100, attempts=1, delivery=2), now=1, last=snoozed)

    assert "snoozed" in explain(facts)[0]


def job(state: State, **fields: object) -> Job:
    known: dict[str, object] = {"enqueued_at": 0} | fields
    return Job(
        tenant=MAIL.tenant,
        queue=MAIL.name,
        id="a",
        nonce="n",
        task="send",
        state=state,
        payload=b"{}",
        priority=5,
        options=Options(),
        **known,  # type: ignore[arg-type]
    )
