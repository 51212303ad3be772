"""The test kit: an app in memory, whose jobs are looked at and run to the end without waiting."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import JobContext, Penstock, Rate, Retry, Snooze, State
from penstock.stores.values import Pause
from penstock.testing import Kit, in_memory, job_context

app = Penstock("sqlite:///never-made.db")
mail = app.queue("mail", max_attempts=3)
ran: list[str] = []

MakeKit = Callable[[Penstock], Kit]


@dataclasses.dataclass
class Letter:
    to: str
    lines: list[str]


@mail.task
async def send(ctx: JobContext, letter: Letter, copies: int = 1) -> str:
    ran.append(f"{letter.to} {ctx.attempt}")
    if letter.to == "later" and ctx.attempt == 1:
        raise Retry(after=24 * 3600)
    if letter.to == "never":
        raise ValueError("no such address")
    if letter.to == "sleepy":
        raise Snooze(60)
    if letter.to == "chain":
        await note.enqueue("sent")
    return letter.to


@app.task
def note(text: str) -> None:
    ran.append(text)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def letter(to: str) -> Letter:
    return Letter(to, ["hello"])


async def test_what_was_enqueued_is_asked_for_by_some_of_its_arguments(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    async with app:
        handle = await send.options(delay=60).enqueue(letter("ada"), 2)

    assert kit.assert_enqueued(send).id == handle.id
    assert kit.assert_enqueued(send, letter("ada")).state is State.DELAYED
    assert kit.assert_enqueued(send, copies=2).queue == "mail"
    assert kit.assert_enqueued("send", copies=2).id == handle.id
    kit.assert_not_enqueued(send, letter("eve"))
    kit.assert_not_enqueued(send, copies=3)
    kit.assert_not_enqueued(note)
    with pytest.raises(
        AssertionError, match=r"no job of send has copies=3; there are: send \{.*\} \(delayed\)"
    ):
        kit.assert_enqueued(send, copies=3)
    with pytest.raises(AssertionError, match="send was enqueued with copies=2"):
        kit.assert_not_enqueued(send, copies=2)


async def test_drain_runs_everything_to_its_end_past_delays_retries_and_chains(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    async with app:
        for to in ("ada", "later", "never", "chain"):
            await send.options(delay=timedelta(hours=1)).enqueue(letter(to))
        ended = await kit.drain()

    assert sorted(job.state for job in ended) == ["completed"] * 4 + ["dead"]
    assert sorted(ran) == ["ada 1", "chain 1", "later 1", "later 2", "never 1", "never 2", "never 3", "sent"]
    assert len(kit.jobs(send, state="completed")) == 3
    assert len(kit.jobs("note")) == 1


async def test_drain_opens_the_app_if_nobody_has(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    async with app:
        handle = await send.enqueue(letter("ada"))

    (job,) = await kit.drain()

    assert (job.id, job.result) == (handle.id, b'"ada"')


async def test_drain_gives_up_on_jobs_that_never_end(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    async with app:
        await send.enqueue(letter("sleepy"))

        with pytest.raises(AssertionError, match=r"after 5 rounds jobs are still live: send"):
            await kit.drain(rounds=5)


async def test_drain_says_when_time_will_not_help(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    async with app:
        await send.enqueue(letter("ada"))
        await kit.store.queues.pause_queue(mail.ref, Pause(0))

        with pytest.raises(AssertionError, match="wait for something that is not time: send"):
            await kit.drain()


async def test_drain_waits_for_the_end_of_a_pause(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    async with app:
        await send.enqueue(letter("ada"))
        await kit.store.queues.pause_queue(mail.ref, Pause(0), for_ms=60_000)
        await kit.drain()

    assert ran == ["ada 1"]


async def test_the_clock_is_turned_by_hand(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    before = kit.now
    async with app:
        await note.options(delay=90).enqueue("now")
        await app.worker(burst=True).run()
        assert ran == []

        kit.advance(timedelta(minutes=1), seconds=30)
        await app.worker(burst=True).run()

    assert ran == ["now"]
    assert timedelta(seconds=90) <= kit.now - before < timedelta(seconds=120)


def test_plain_tests_use_the_blocking_face(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    with app.blocking as queue:
        queue.enqueue(note, "hello")

    assert [job.payload for job in kit.jobs()] == [b'{"text":"hello"}']


def test_the_apps_own_store_is_back_afterwards_and_was_never_made() -> None:
    before = app.store
    with in_memory(app) as kit:
        assert app.store is kit.store

    assert app.store is before
    assert not Path("never-made.db").exists()


async def test_a_handler_is_called_directly_with_a_context() -> None:
    assert await send(job_context(attempt=2), letter("later")) == "later"
    assert ran == ["later 2"]


async def test_drain_carries_flows_from_queue_to_queue(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    async with app:
        flow = app.flow()
        first = flow.add(send.options(delay=60).call(letter("ada")))
        flow.add(note.call("after ada"), after=[first])
        handle = await flow.enqueue()
        await kit.drain()

        assert ran == ["ada 1", "after ada"]
        assert (await handle.status()).completed == 2


async def test_drain_says_which_jobs_wait_for_others(penstock_kit: MakeKit) -> None:
    kit = penstock_kit(app)
    async with app:
        flow = app.flow()
        lost = flow.add(send.call(letter("never")))
        flow.add(note.call("for ever"), after=[lost], child_policy="wait")
        await flow.enqueue()

        with pytest.raises(AssertionError, match=r"not time: note .*blocked"):
            await kit.drain()


async def test_drain_waits_for_rates_by_turning_the_clock(penstock_kit: MakeKit) -> None:
    slow = Penstock("memory://")

    @slow.queue("slow", rate=Rate.per_second(0.1)).task
    def tick(number: int) -> int:
        return number

    kit = penstock_kit(slow)
    before = kit.now
    async with slow:
        await tick.enqueue_many([(number,) for number in range(4)])
        await kit.drain()

    assert len(kit.jobs(tick, state="completed")) == 4
    assert kit.now - before >= timedelta(seconds=30)
