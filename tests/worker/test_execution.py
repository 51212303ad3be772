"""How what a handler does becomes what the job is."""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.core.moves import Move
from penstock.core.retry import Backoff
from penstock.core.states import State
from penstock.tasks.context import JobContext, current_job
from penstock.tasks.signals import Cancel, Fail, Retry, Snooze
from tests.worker.kit import Desk


async def test_an_async_handler_completes_with_its_result(desk: Desk) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    job = await desk.enqueue("add", b'{"a":2,"b":3}')
    await desk.burst(add)

    found = await desk.job(job)
    assert (found.state, found.result) == (State.COMPLETED, b"5")


async def test_a_sync_handler_runs_in_a_daemon_thread_with_its_context(desk: Desk) -> None:
    seen: list[Any] = []

    def look(ctx: JobContext) -> str:
        thread = threading.current_thread()
        seen.append((thread is threading.main_thread(), thread.daemon, current_job() is ctx))
        return ctx.task

    job = await desk.enqueue("look")
    await desk.burst(look)

    assert seen == [(False, True, True)]
    assert (await desk.job(job)).result == b'"look"'


async def test_the_context_tells_the_job(desk: Desk) -> None:
    seen: list[JobContext] = []

    async def look(ctx: JobContext) -> None:
        assert current_job() is ctx
        seen.append(ctx)

    job = await desk.enqueue("look", max_attempts=3)
    await desk.burst(look, name="w1")

    (ctx,) = seen
    record = await desk.job(job)
    assert (ctx.id, ctx.task, ctx.queue, ctx.tenant) == (job, "look", desk.queue.name, desk.queue.tenant)
    assert (ctx.attempt, ctx.max_attempts, ctx.delivery, ctx.drive) == (1, 3, 1, 1)
    assert (ctx.worker, ctx.fence) == ("w1", record.fence)
    assert ctx.enqueued_at.timestamp() == pytest.approx(record.enqueued_at / 1000)
    assert ctx.deadline.timestamp() == pytest.approx(time.time() + 300, abs=10)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_error_is_tried_again_until_none_is_left(desk: Desk, kind: str) -> None:
    def boom() -> None:
        raise ValueError("no luck")

    async def aboom() -> None:
        boom()

    handler = aboom if kind == "async" else boom
    job = await desk.enqueue(handler.__name__, max_attempts=3)
    await desk.burst(handler)

    found = await desk.job(job)
    moves = await desk.moves(job)
    assert (found.state, found.attempts, found.reason) == (State.DEAD, 3, "MAX_ATTEMPTS")
    assert [move for move in moves if move in (Move.RETRY, Move.BURY)] == [Move.RETRY, Move.RETRY, Move.BURY]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_error_names_type_and_message_first_and_then_the_handlers_own_frames(
    desk: Desk, kind: str
) -> None:
    def boom() -> None:
        raise ValueError("no luck")

    async def aboom() -> None:
        boom()

    handler = aboom if kind == "async" else boom
    job = await desk.enqueue(handler.__name__, max_attempts=1)
    await desk.burst(handler)

    error = (await desk.job(job)).error
    assert error is not None
    assert error.startswith("ValueError: no luck\n\nTraceback (most recent call last):\n")
    assert f"in {handler.__name__}\n" in error
    assert "execute.py" not in error


async def test_an_error_that_cannot_say_what_it_is_still_fails_the_execution(desk: Desk) -> None:
    class BadError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("broken")

    async def bad() -> None:
        raise BadError

    job = await desk.enqueue("bad", max_attempts=1)
    await desk.burst(bad)

    assert "BadError" in ((await desk.job(job)).error or "")


async def test_an_error_whose_text_interrupts_does_not_end_the_worker(desk: Desk) -> None:
    class RudeError(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

        __repr__ = __str__

    async def rude() -> None:
        raise RudeError

    async def refuse() -> None:
        raise Fail(RudeError())

    jobs = [await desk.enqueue(name, max_attempts=1) for name in ("rude", "refuse")]
    await desk.burst(rude, refuse)

    found = [await desk.job(job) for job in jobs]
    assert [job.state for job in found] == [State.DEAD, State.FAILED]
    assert all("RudeError" in (job.error or "") for job in found)


async def test_an_ending_that_cannot_be_made_out_is_an_error_and_frees_the_slot(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    async def boom() -> None:
        raise ValueError

    monkeypatch.setattr("penstock.worker.execute.after_error", broken)
    jobs = [await desk.enqueue("boom", max_attempts=1) for _ in range(2)]
    await desk.burst(boom, concurrency=1)

    for job in jobs:
        found = await desk.job(job)
        assert (found.state, (found.error or "").partition("\n")[0]) == (State.DEAD, "RuntimeError: broken")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()])
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_exits_and_interrupts_in_a_handler_are_its_errors_and_not_the_workers(
    desk: Desk, kind: str, error: BaseException
) -> None:
    def leave() -> None:
        raise error

    async def aleave() -> None:
        raise error

    async def fine() -> None: ...

    handler = aleave if kind == "async" else leave
    job = await desk.enqueue(handler.__name__, max_attempts=1)
    after = await desk.enqueue("fine")
    await desk.burst(handler, fine)

    found = await desk.job(job)
    assert found.state is State.DEAD
    assert (await desk.job(after)).state is State.COMPLETED


async def test_sys_exit_in_a_handler_is_an_error(desk: Desk) -> None:
    def leave() -> None:
        sys.exit("bye")

    job = await desk.enqueue("leave", max_attempts=1)
    await desk.burst(leave)

    assert ((await desk.job(job)).error or "").startswith("SystemExit: bye\n")


async def test_a_handler_that_raises_cancelled_by_itself_has_failed(desk: Desk) -> None:
    async def odd() -> None:
        raise asyncio.CancelledError

    job = await desk.enqueue("odd", max_attempts=1)
    await desk.burst(odd)

    found = await desk.job(job)
    assert (found.state, (found.error or "").partition("\n")[0]) == (State.DEAD, "CancelledError")


async def test_a_handler_that_cancels_its_own_task_has_failed(desk: Desk) -> None:
    async def odd() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    job = await desk.enqueue("odd", max_attempts=2)
    await desk.burst(odd)

    found = await desk.job(job)
    assert (found.state, found.attempts, found.delivery) == (State.DEAD, 2, 2)
    assert (found.error or "").startswith("CancelledError\n")


async def test_a_payload_that_does_not_fit_is_tried_again(desk: Desk) -> None:
    async def add(a: int) -> int:
        return a

    job = await desk.enqueue("add", b'{"a":"many"}', backoff=Backoff.fixed(60))
    await desk.burst(add)

    found = await desk.job(job)
    assert (found.state, found.attempts, found.reason) == (State.DELAYED, 1, "INVALID_PAYLOAD")


async def test_a_result_that_is_not_json_is_a_failed_execution(desk: Desk) -> None:
    async def bad() -> object:
        return {1, 2}

    job = await desk.enqueue("bad", max_attempts=1)
    await desk.burst(bad)

    found = await desk.job(job)
    assert found.state is State.DEAD
    assert (found.error or "").startswith("PayloadError: result")


async def test_retry_with_a_delay_of_its_own(desk: Desk) -> None:
    async def later() -> None:
        raise Retry(after=20, reason="busy")

    job = await desk.enqueue("later")
    await desk.burst(later)

    found = await desk.job(job)
    assert (found.state, found.attempts, found.last_delay_ms) == (State.DELAYED, 1, 20_000)
    assert (found.error or "").startswith("Retry: busy")


async def test_delays_may_be_timedeltas(desk: Desk) -> None:
    async def retry() -> None:
        raise Retry(after=timedelta(seconds=20))

    async def snooze() -> None:
        raise Snooze(timedelta(minutes=1))

    first, second = await desk.enqueue("retry"), await desk.enqueue("snooze")
    await desk.burst(retry, snooze)

    retried, snoozed = await desk.job(first), await desk.job(second)
    assert (retried.last_delay_ms, (retried.error or "").partition("\n")[0]) == (
        20_000,
        "Retry: retry after 20 s",
    )
    assert (snoozed.state, snoozed.attempts) == (State.DELAYED, 0)


@pytest.mark.parametrize("after", [8 * 24 * 3600, -1, float("nan"), float("inf"), "soon"])
async def test_a_delay_that_cannot_be_is_an_error_with_the_policys_delay(desk: Desk, after: Any) -> None:
    async def later() -> None:
        raise Retry(after=after)

    job = await desk.enqueue("later", backoff=Backoff.fixed(60))
    await desk.burst(later)

    found = await desk.job(job)
    assert (found.state, found.last_delay_ms) == (State.DELAYED, 60_000)
    assert (found.error or "").startswith("OptionError: retry.after: found")


async def test_snooze_uses_no_attempt(desk: Desk) -> None:
    async def later() -> None:
        raise Snooze(30)

    job = await desk.enqueue("later")
    await desk.burst(later)

    found = await desk.job(job)
    assert (found.state, found.attempts, found.delivery) == (State.DELAYED, 0, 1)
    assert (await desk.moves(job))[-1] is Move.SNOOZE


async def test_a_snooze_that_cannot_be_is_an_error(desk: Desk) -> None:
    async def later() -> None:
        raise Snooze(-5)

    job = await desk.enqueue("later", max_attempts=1)
    await desk.burst(later)

    assert ((await desk.job(job)).error or "").startswith("OptionError: snooze")


async def test_fail_ends_the_job_for_good(desk: Desk) -> None:
    def stop() -> None:
        raise Fail("not this one")

    job = await desk.enqueue("stop")
    await desk.burst(stop)

    found = await desk.job(job)
    assert (found.state, found.reason, found.error) == (State.FAILED, "FAILED", "not this one")


class GoneError(Fail):
    """A signal that does not call its base."""

    def __init__(self, number: int) -> None:
        self.number = number


class BusyError(Retry):
    """A signal that does not call its base."""

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize(
    ("signal", "error"),
    [
        (Fail(404), "404"),
        (Fail(b"x"), "b'x'"),
        (Fail({"code": 1}), "{'code': 1}"),
        (Fail(ValueError("no luck")), "ValueError: no luck"),
        (Fail(""), None),
        (GoneError(7), "GoneError: 7"),
    ],
)
async def test_whatever_fail_is_given_as_its_reason_becomes_text(
    desk: Desk, signal: Fail, error: str | None
) -> None:
    async def stop() -> None:
        raise signal

    job = await desk.enqueue("stop")
    await desk.burst(stop)

    found = await desk.job(job)
    assert (found.state, found.error) == (State.FAILED, error)


async def test_a_retry_that_does_not_call_its_base_waits_the_policys_delay(desk: Desk) -> None:
    async def later() -> None:
        raise BusyError(7)

    job = await desk.enqueue("later", backoff=Backoff.fixed(60))
    await desk.burst(later)

    found = await desk.job(job)
    assert (found.state, found.last_delay_ms) == (State.DELAYED, 60_000)
    assert (found.error or "").startswith("BusyError: 7\n")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_cancel_ends_the_job_as_cancelled(desk: Desk, kind: str) -> None:
    def stop() -> None:
        raise Cancel

    async def astop() -> None:
        raise Cancel

    handler = astop if kind == "async" else stop
    job = await desk.enqueue(handler.__name__)
    await desk.burst(handler)

    assert (await desk.job(job)).state is State.CANCELLED
    assert (await desk.moves(job))[-2:] == [Move.CANCEL, Move.RELEASE]


async def test_the_reason_of_a_cancel_is_kept_and_logged(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop() -> None:
        raise Cancel("customer asked")

    caplog.set_level("INFO", "penstock.worker")
    job = await desk.enqueue("stop")
    await desk.burst(stop)

    found = await desk.job(job)
    assert (found.state, found.error) == (State.CANCELLED, "customer asked")
    assert [
        getattr(record, "error", None) for record in caplog.records if "by its handler" in record.msg
    ] == ["customer asked"]


async def test_middleware_wraps_in_the_order_given_and_may_change_the_result(desk: Desk) -> None:
    told: list[str] = []

    def named(name: str) -> Callable[[JobContext, Callable[[], Awaitable[Any]]], Awaitable[Any]]:
        async def around(ctx: JobContext, call_next: Callable[[], Awaitable[Any]]) -> Any:
            told.append(f"{name} before {ctx.task}")
            result = await call_next()
            told.append(f"{name} after")
            return [name, result]

        return around

    async def inner() -> object:
        told.append("handler")
        return "done"

    def blocking() -> object:
        return "thread"

    job = await desk.enqueue("inner")
    other = await desk.enqueue("blocking")
    await desk.burst(inner, blocking, middleware=[named("a"), named("b")], concurrency=1)

    assert told[:5] == ["a before inner", "b before inner", "handler", "b after", "a after"]
    assert (await desk.job(job)).result == b'["a",["b","done"]]'
    assert (await desk.job(other)).result == b'["a",["b","thread"]]'


async def test_what_middleware_raises_counts_as_raised_by_the_handler(desk: Desk) -> None:
    async def refuse(ctx: JobContext, call_next: Callable[[], Awaitable[Any]]) -> Any:
        raise Fail("not today")

    async def never() -> None:
        raise AssertionError

    job = await desk.enqueue("never")
    await desk.burst(never, middleware=[refuse])

    assert (await desk.job(job)).error == "not today"
