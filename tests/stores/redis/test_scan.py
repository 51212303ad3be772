"""Walking all of a queue's records in pages."""

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.redis import RedisStore
from penstock.stores.redis.scan import JobPage
from penstock.testing.conformance.arrange import claim, enqueue, new_job

QUEUE = QueueRef("default", "q")
EVER = (0, 10**15)


async def walked(store: RedisStore, size: int, ended: State | None = None) -> list[str]:
    pages = [page async for page in store.scan.pages(QUEUE, ended, *EVER, size=size)]
    return [job for page in pages for job in page.ids]


async def test_each_is_met_once_however_many_share_a_time(store: RedisStore) -> None:
    """Pages smaller, as large, and larger than what came in at once."""
    names = [f"j{at:03}" for at in range(50)]
    await enqueue(store, QUEUE, [new_job(name) for name in names])
    await enqueue(store, QUEUE, [new_job("last")])

    for size in (1, 7, 50, 51, 1_000):
        assert sorted(await walked(store, size)) == sorted([*names, "last"])


async def test_what_goes_away_meanwhile_is_left_out_and_takes_nothing_along(store: RedisStore) -> None:
    """Also where it came back under its id."""
    await enqueue(store, QUEUE, [new_job(f"j{at:03}") for at in range(20)])
    met = []
    async for page in store.scan.pages(QUEUE, None, *EVER, size=5):
        met += page.ids
        if len(met) == 5:
            await store.moves.delete(QUEUE, ["j000", "j007", "j019"])
            await store.clock.advance_clock(60_000)
            await enqueue(store, QUEUE, [new_job("j007")])

    assert sorted(met) == [f"j{at:03}" for at in range(19)]


async def test_what_stands_apart_is_fetched_for_what_the_sieve_keeps(store: RedisStore) -> None:
    await enqueue(store, QUEUE, [new_job(f"j{at}", payload=b"[%d]" % at) for at in range(6)])
    seen: list[dict[str, object]] = []

    def sieve(page: JobPage) -> list[int]:
        seen.append(dict(page.side))
        return [at for at, job in enumerate(page.ids) if job in {"j1", "j4"}]

    columns = ("id", "payload", "result")
    pages = [
        page async for page in store.scan.pages(QUEUE, None, *EVER, columns=columns, sieve=sieve, size=4)
    ]

    assert [[page.column(name) for name in columns] for page in pages] == [
        [["j1"], ["[1]"], [None]],
        [["j4"], ["[4]"], [None]],
    ]
    assert seen == [{}, {}]


async def test_ended_jobs_are_walked_by_their_ending(store: RedisStore) -> None:
    await enqueue(store, QUEUE, [new_job("a"), new_job("b", delay_ms=60_000)])
    await claim(store, QUEUE)
    await store.moves.cancel(QUEUE, ["b"])

    assert await walked(store, 10, State.CANCELLED) == ["b"]
    assert await walked(store, 10, State.DEAD) == []
    assert await store.scan.spans(QUEUE, State.DEAD, 0, 10) == []
