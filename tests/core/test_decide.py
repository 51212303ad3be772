"""What follows from how an execution ended."""

import pytest
from msgspec.structs import replace

from penstock.core import decide
from penstock.core.errors import OptionError
from penstock.core.events import fingerprint
from penstock.core.job import DAY_MS, Claimed, ExpiredLease, Options
from penstock.core.moves import Bury, Complete, Expire, Fail, Release, Retry, Snooze
from penstock.core.retry import MAX_DELAY_MS, Backoff
from penstock.core.states import State

POLICY = Options(max_attempts=3, backoff=Backoff.exponential(base=1, cap=300, jitter="none"))


def highest(low: float, high: float) -> float:
    return high


def claimed(attempts: int = 0, options: Options = POLICY) -> Claimed:
    return Claimed(
        id="a",
        task="t",
        payload=b"{}",
        priority=5,
        options=options,
        enqueued_at=0,
        drive=1,
        delivery=attempts + 1,
        attempts=attempts,
        token="held",
        fence=1,
        deadline=1,
    )


def expired(attempts: int, options: Options = POLICY) -> ExpiredLease:
    return ExpiredLease(id="a", token="held", fence=1, attempts=attempts, options=options, worker="w")


def test_what_a_handler_returned_completes_the_job() -> None:
    settled = decide.settle(claimed(), decide.Returned(b"1"), highest)

    assert settled == Complete("a", "held", b"1")


def test_an_error_is_tried_again_after_the_policys_delay_while_attempts_are_left() -> None:
    first = decide.settle(claimed(0), decide.Raised("ValueError: no"), highest)
    second = decide.settle(claimed(1), decide.Raised("ValueError: no"), highest)

    assert isinstance(first, Retry)
    assert isinstance(second, Retry)
    assert (first.delay_ms, second.delay_ms) == (1_000, 2_000)
    assert first.fault.reason == decide.ERROR


def test_the_last_attempt_buries_the_job_as_max_attempts() -> None:
    settled = decide.settle(claimed(2), decide.Raised("ValueError: no"), highest)

    assert isinstance(settled, Bury)
    assert settled.fault.reason == decide.MAX_ATTEMPTS
    assert settled.fault.error == "ValueError: no"
    assert settled.fault.fingerprint == fingerprint("ValueError: no")


@pytest.mark.parametrize(
    ("waited", "delay"), [(None, 15_000), (15_000, 30_000), (45_000, 60_000), (600_000, 300_000)]
)
def test_a_job_that_nobody_can_run_comes_back_after_growing_delays(waited: int | None, delay: int) -> None:
    job = claimed(2)
    if waited is not None:
        job = replace(job, unhandled_since=1_000_000 - waited)
    settled = decide.settle(job, decide.Unhandled(1_000_000, is_known=False, after_ms=DAY_MS), highest)

    assert settled == Snooze("a", "held", delay, decide.NO_HANDLER)


def test_a_job_that_another_worker_can_run_comes_back_soon() -> None:
    job = replace(claimed(), unhandled_since=0)
    settled = decide.settle(job, decide.Unhandled(600_000, is_known=True, after_ms=DAY_MS), highest)

    assert settled == Snooze("a", "held", 3_000, decide.NO_HANDLER)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_job_that_nobody_could_run_for_long_is_dead_without_an_attempt(is_known: bool) -> None:
    job = replace(claimed(), unhandled_since=5)
    settled = decide.settle(job, decide.Unhandled(DAY_MS + 5, is_known, after_ms=DAY_MS), highest)

    assert isinstance(settled, Bury)
    assert (settled.uses_attempt, settled.fault.reason) == (False, decide.NO_HANDLER)


@pytest.mark.parametrize("reason", [decide.TIMEOUT, decide.INVALID_PAYLOAD])
def test_a_reason_that_says_more_than_max_attempts_is_kept_to_the_end(reason: str) -> None:
    retried = decide.settle(claimed(0), decide.Raised("x", reason), highest)
    buried = decide.settle(claimed(2), decide.Raised("x", reason), highest)

    assert isinstance(retried, Retry)
    assert isinstance(buried, Bury)
    assert retried.fault.reason == buried.fault.reason == reason


def test_one_attempt_allowed_means_one_execution() -> None:
    settled = decide.settle(claimed(0, Options(max_attempts=1)), decide.Raised("x"), highest)

    assert isinstance(settled, Bury)


def test_a_handlers_own_delay_wins_over_the_policy_but_not_over_the_last_attempt() -> None:
    own = decide.settle(claimed(0), decide.Raised("x", after_ms=77), highest)
    last = decide.settle(claimed(2), decide.Raised("x", after_ms=77), highest)

    assert isinstance(own, Retry)
    assert own.delay_ms == 77
    assert isinstance(last, Bury)


@pytest.mark.parametrize("delay_ms", [-1, MAX_DELAY_MS + 1])
def test_a_delay_of_more_than_seven_days_is_an_error(delay_ms: int) -> None:
    with pytest.raises(OptionError):
        decide.settle(claimed(), decide.Raised("x", after_ms=delay_ms), highest)
    with pytest.raises(OptionError):
        decide.settle(claimed(), decide.Postponed(delay_ms), highest)

    assert decide.settle(claimed(), decide.Postponed(MAX_DELAY_MS), highest) == Snooze(
        "a", "held", MAX_DELAY_MS
    )


def test_refused_fails_and_interrupted_gives_the_job_back() -> None:
    refused = decide.settle(claimed(), decide.RaisedFail("no such address"), highest)

    assert isinstance(refused, Fail)
    assert (refused.fault.reason, refused.fault.error) == (decide.FAILED, "no such address")
    assert decide.settle(claimed(), decide.Interrupted(), highest) == Release("a", "held")


def test_a_lease_that_ran_out_counts_as_an_attempt() -> None:
    again = decide.expire(expired(0), highest)
    dead = decide.expire(expired(2), highest)

    assert isinstance(again, Expire)
    assert (again.target, again.delay_ms, again.fault.reason) == (State.DELAYED, 1_000, decide.LEASE_EXPIRED)
    assert (dead.target, dead.fault.reason) == (State.DEAD, decide.LEASE_EXPIRED)


def test_an_error_is_kept_bounded_and_without_what_stores_cannot_hold() -> None:
    clean = decide.clean_error("a\0b\ud800" + "x" * 20_000)

    assert len(clean) <= 8_100
    assert "\0" not in clean
    assert clean.encode()
