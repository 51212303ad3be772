"""An enqueue that comes twice, while the first one's job already runs through."""

import psycopg

from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Move
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.sources import load_sources
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job, settle
from tests.conformance.stores import opened
from tests.stores.postgres.waiting import until_it_waits

QUEUE = QueueRef("default", "q")
_HOLD_THE_ID = """
INSERT INTO penstock.job (queue, priority, max_attempts, place, stamp, enqueued_at, retention_ms, key_held_ms,
    state, id, nonce, task, options, payload)
SELECT queue, priority, max_attempts, place, stamp, enqueued_at, retention_ms, key_held_ms,
    state, 'slow', nonce, task, options, payload
FROM penstock.job WHERE id = 'model'
"""


async def _repeat_late(
    url: str, sources: dict[str, str] | None = None
) -> tuple[list[Enqueued], list[str], int]:
    """Its answers, what is wrong after it, and how often the job was made.

    The second call looks, and then has to wait for somebody at its first job; meanwhile the first call's job
    is made, claimed and completed.
    """
    first, second = PostgresStore(url), PostgresStore(url, sources=sources)
    async with opened(first), opened(second):
        await enqueue(first, QUEUE, [new_job("model")])
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute(_HOLD_THE_ID)
            twice = new_job("twice", priority=9)
            _, task = await until_it_waits(url, second.moves.enqueue(QUEUE, [new_job("slow"), twice]))
            await enqueue(first, QUEUE, [twice])
            held = await claim_one(first, QUEUE)
            await settle(first, QUEUE, Complete(held.id, held.token))
            await other.rollback()
        answers = [answer for answer in await task if isinstance(answer, Enqueued)]
        # The job that holds the id was put past the store, which has not counted it.
        found = [finding.what for finding in await first.health.check(QUEUE)]
        wrong = [what for what in found if not what.startswith("the counts say")]
        events = await first.events.read_events(QUEUE)
    made = sum(event.move is Move.ENQUEUE and event.job == "twice" for event in events)
    return answers, wrong, made


async def test_a_job_that_ran_meanwhile_is_not_made_again(url: str) -> None:
    """It is among the ended ones, and only there; the repeat gets it as its answer."""
    answers, wrong, made = await _repeat_late(url)

    assert answers == [Enqueued("slow", True, State.PENDING), Enqueued("twice", True, State.COMPLETED)]
    assert wrong == []
    assert made == 1


async def test_without_a_second_look_it_would_be_made_again(url: str) -> None:
    """So that the test above is about that look."""
    sources = load_sources()
    name = "moves/enqueue.sql"
    sources[name] = (
        sources[name]
        .replace("inserted.id <> ALL (duplicates.ids)", "true")
        .replace("array_agg(inserted.id)", "array_agg(''::text)")
    )
    _, wrong, made = await _repeat_late(url, sources)

    assert "a job both live and ended" in wrong
    assert made == 2


async def _refuse_late(
    url: str, sources: dict[str, str] | None = None
) -> tuple[list[Enqueued | Refused], list[str], list[Enqueued | Refused]]:
    """The answers to two jobs with keys, what is wrong after them, and the answers to others with those keys.

    The id of the first is taken by somebody else while it waits.
    """
    first, second = PostgresStore(url), PostgresStore(url, sources=sources)
    async with opened(first), opened(second):
        await enqueue(first, QUEUE, [new_job("model")])
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute(_HOLD_THE_ID)
            late = [new_job("slow", idempotency_key="k"), new_job("b", idempotency_key="of b")]
            _, task = await until_it_waits(url, second.moves.enqueue(QUEUE, late))
            await other.commit()
        answers = await task
        # The job that holds the id was put past the store, which has not counted it.
        found = [finding.what for finding in await first.health.check(QUEUE)]
        wrong = [what for what in found if not what.startswith("the counts say")]
        again = [new_job("c", idempotency_key="k"), new_job("d", idempotency_key="of b")]
        return answers, wrong, await first.moves.enqueue(QUEUE, again)


async def test_a_job_that_was_not_made_holds_no_key(url: str) -> None:
    """The key that came with it is the next one's."""
    answers, wrong, again = await _refuse_late(url)

    assert answers == [Refused(Refusal.DUPLICATE, State.PENDING), Enqueued("b", True, State.PENDING)]
    assert wrong == []
    assert again[0] == Enqueued("c", True, State.PENDING)
    assert isinstance(again[1], Enqueued)
    assert (again[1].id, again[1].created) == ("b", False)


async def test_a_key_that_was_not_let_go_of_would_be_found(url: str) -> None:
    sources = load_sources()
    sources["moves/enqueue.sql"] = sources["moves/enqueue.sql"].replace("CROSS JOIN released_keys", "")
    _, wrong, again = await _refuse_late(url, sources)

    assert wrong == ["an idempotency key held for a job that does not have it"]
    assert isinstance(again[0], Enqueued)
    assert (again[0].id, again[0].created) == ("slow", False)
