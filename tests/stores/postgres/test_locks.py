"""Who waits for whom; and that the tests would notice if nobody did."""

import psycopg
import pytest

from penstock.core.errors import DeclarationError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Complete, Expire, Move
from penstock.core.outcomes import Applied, Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.enqueue import PostgresEnqueue
from penstock.stores.postgres.queue_transaction import QueueTransaction
from penstock.stores.postgres.sources import load_sources
from penstock.stores.rows import settlement_item
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.stores.postgres.waiting import until_it_waits

QUEUE = QueueRef("default", "q")


def without(words: str, instead: str = "") -> dict[str, str]:
    """The SQL files without these words."""
    return {name: text.replace(words, instead) for name, text in load_sources().items()}


async def _claim_beside_locked_rows(url: str, sources: dict[str, str] | None = None) -> list[str] | None:
    """What a claim of two brings while another transaction holds the first two rows; None if it waits."""
    store = PostgresStore(url, sources=sources)
    async with opened(store), await psycopg.AsyncConnection.connect(url) as other:
        await enqueue(store, QUEUE, [new_job(f"j{n}") for n in range(5)])
        await other.execute("SELECT 1 FROM penstock.job WHERE id IN ('j0', 'j1') FOR UPDATE")
        waits, task = await until_it_waits(
            url, store.moves.claim(QUEUE, worker="w", limit=2, lease_ms=LEASE_MS)
        )
        await other.rollback()
        claims = await task
    return None if waits else [job.id for job in claims.jobs]


async def test_a_claim_passes_over_rows_that_others_hold(url: str) -> None:
    """It brings the next ones, and waits for nobody."""
    assert await _claim_beside_locked_rows(url) == ["j2", "j3"]


async def test_without_skip_locked_a_claim_waits(url: str) -> None:
    """So that the test above is about those words."""
    assert await _claim_beside_locked_rows(url, without("SKIP LOCKED")) is None


async def _expire_beside_a_completion(
    url: str, sources: dict[str, str] | None = None
) -> tuple[Applied | Refused, list[str]]:
    """The answer to an expiry that comes while the job is being completed, and what is wrong after both."""
    store = PostgresStore(url, sources=sources)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])
        held = await claim_one(store, QUEUE)
        await store.clock.advance_clock(LEASE_MS)
        number = await store.backend.open_number(QUEUE)
        columns = [[value] for value in settlement_item(Complete(held.id, held.token))]
        async with store.backend.engine.transaction() as first:
            await store.backend.run_move(Move.COMPLETE, number, *columns, on=first)
            expiry = store.moves.expire(QUEUE, [Expire(held.id, held.token, State.DEAD, FAULT)])
            _, task = await until_it_waits(url, expiry)
        [answer] = await task
        wrong = [finding.what for finding in await store.health.check(QUEUE)]
    return answer, wrong


async def test_of_two_settlements_at_once_the_second_is_refused(url: str) -> None:
    """It waits for the first one's lock, and then sees what that one did."""
    assert await _expire_beside_a_completion(url) == (Refused(Refusal.LOST, State.COMPLETED), [])


async def test_without_for_update_both_are_made(url: str) -> None:
    """So that the test above, and the races, are about those words."""
    answer, wrong = await _expire_beside_a_completion(url, without("FOR UPDATE\n", "\n"))

    assert isinstance(answer, Applied)
    assert wrong


async def _waits_for_the_row(url: str, sources: dict[str, str] | None = None) -> bool:
    """Whether a claim on a limited queue waits for a call that is under way there."""
    store, other = PostgresStore(url, sources=sources), PostgresStore(url, sources=sources)
    async with opened(store), opened(other):
        await store.queues.declare(QUEUE, Declaration(max_active=3))
        await enqueue(store, QUEUE, [new_job() for _ in range(9)])
        async with store.backend.queue_transaction(await store.backend.open_number(QUEUE)):
            waits, task = await until_it_waits(
                url, other.moves.claim(QUEUE, worker="w", limit=9, lease_ms=LEASE_MS)
            )
        await task
    return waits


async def test_claims_with_limits_go_one_after_the_other(url: str) -> None:
    """Two that count at once would each find room."""
    assert await _waits_for_the_row(url)


async def test_without_the_lock_on_the_row_they_do_not(url: str) -> None:
    """So that the test above is about that lock."""
    assert not await _waits_for_the_row(url, without("FOR UPDATE  -- locked"))


async def test_a_mode_changes_after_those_who_are_making_jobs(url: str) -> None:
    """They do not hold the queue's row: so it waits for them, and is refused because of what they made."""
    store, other = PostgresStore(url), PostgresStore(url)
    async with opened(store), opened(other):
        number = await store.backend.open_number(QUEUE)
        async with store.backend.queue_transaction(number, holds=False) as transaction:
            await PostgresEnqueue(store.backend).admit(transaction, [new_job("a")])
            waits, task = await until_it_waits(url, other.queues.declare(QUEUE, Declaration(mode=Mode.KEYED)))
        with pytest.raises(DeclarationError, match="has live jobs"):
            await task

    assert waits


async def test_limits_begin_after_claims_under_way(url: str) -> None:
    """A claim without a look at the others is through before the first one that counts them."""
    store, other = PostgresStore(url), PostgresStore(url)
    async with opened(store), opened(other):
        await enqueue(store, QUEUE, [new_job() for _ in range(9)])
        number = await store.backend.open_number(QUEUE)
        async with store.backend.engine.transaction() as first:
            spans: list[list[int]] = [[5], [0], [99]]
            await store.backend.run_move(
                Move.CLAIM, number, 3, LEASE_MS, "w", *spans, 0, 0, True, [], 0, on=first
            )
            waits, task = await until_it_waits(url, other.queues.declare(QUEUE, Declaration(max_active=4)))
        await task
        rest = await claim(other, QUEUE)

    assert waits
    assert len(rest) == 1


async def _debounce_beside_a_claim(
    url: str, monkeypatch: pytest.MonkeyPatch, sources: dict[str, str] | None = None
) -> Enqueued | Refused:
    """The answer to a newer job of a kind, when the older one is claimed after the admission was decided."""
    unique = Unique("kind", UniqueRule.DEBOUNCE)
    store, other = PostgresStore(url, sources=sources), PostgresStore(url)
    query = QueueTransaction.run_shared

    async def query_and_be_late(
        transaction: QueueTransaction, name: str, *params: object
    ) -> list[tuple[object, ...]]:
        rows = await query(transaction, name, *params)  # type: ignore[arg-type]
        if name == "existing_jobs":
            await claim(other, QUEUE)
        return rows

    async with opened(store), opened(other):
        await enqueue(store, QUEUE, [new_job("old", unique=unique)])
        monkeypatch.setattr(QueueTransaction, "run_shared", query_and_be_late)
        [answer] = await store.moves.enqueue(QUEUE, [new_job("new", unique=unique)])
    return answer


async def test_work_that_starts_while_it_is_replaced_is_left_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admission is decided again, and the newer job is taken in."""
    answer = await _debounce_beside_a_claim(url, monkeypatch)

    assert answer == Enqueued("new", True, State.PENDING)


async def test_without_its_guard_running_work_would_be_replaced(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above is about that guard."""
    guard = "            AND job.state IN ('pending', 'delayed')  -- guard: state\n"
    answer = await _debounce_beside_a_claim(url, monkeypatch, without(guard))

    assert isinstance(answer, Enqueued)
    assert answer.replaced
