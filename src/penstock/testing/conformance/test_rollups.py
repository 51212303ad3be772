"""Rollups are what a plain fold of the same events is, whoever folds, and whoever is killed while he does."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from penstock.client import event_folding
from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Fail, Release, Retry
from penstock.core.rollups import HOUR_MS, KEPT_MS, MINUTE_MS, SPANS, Deltas, FoldState, Row, fold, merge_rows
from penstock.maintenance.roller import Roller
from penstock.stores.protocol import Store
from penstock.stores.rollup_entries import RollupEntries
from penstock.testing.conformance.arrange import FAULT, claim, enqueue, new_job
from penstock.testing.conformance.parts import Part, needs

Rows = dict[int, dict[str, Row]]
pytestmark = [needs(Part.ROLLUPS, Part.KEY_VALUE, Part.EVENT_RANGES)]


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few events make several steps."""
    monkeypatch.setattr(event_folding, "PAGE", 7)


async def work(store: Store, queue: QueueRef, *, turns: int = 6) -> None:
    """Jobs of two tasks that end in one way or another, over some minutes."""
    chance = random.Random(1)
    for turn in range(turns):
        await enqueue(store, queue, [new_job(f"{turn}-{n}", task=f"task-{n % 2}") for n in range(4)])
        await store.clock.advance_clock(chance.choice([700, 20_000, 70_000]))
        endings = []
        for job in await claim(store, queue, limit=3):
            kind = chance.choice([Complete, Complete, Fail, Retry, Release])
            endings.append(
                kind(job.id, job.token)
                if kind in (Complete, Release)
                else Retry(job.id, job.token, 1_000, FAULT)
                if kind is Retry
                else Fail(job.id, job.token, FAULT)
            )
        await store.moves.settle(queue, endings)
    await store.moves.delete(queue, ["0-0", "1-0", "2-0"])


async def folded_plainly(store: Store, queue: QueueRef) -> dict[int, Rows]:
    """What the whole log adds up to, in one process and from the beginning."""
    events = await store.events.read_events(queue, limit=10_000)
    state, rows = FoldState(), {span: Rows() for span in SPANS}
    while events:
        deltas, many = fold(state, events)
        state, events = deltas.state, events[many:]
        for span, begins in deltas.rows.items():
            for begin, tasks in begins.items():
                merge_rows(rows[span].setdefault(begin, {}), tasks)
    return rows


async def kept(rollups: Any, queue: QueueRef, limit: int = 3) -> dict[int, Rows]:
    """The rollups that the store has, read page by page."""
    found: dict[int, Rows] = {}
    for span in SPANS:
        found[span], since = Rows(), 0
        while since is not None:
            page = await rollups.list_rollups(queue, span, since, limit)
            found[span].update({each.at: each.rows for each in page.spans})
            since = page.next
    return found


def plain(rows: dict[int, Rows]) -> Any:
    """Rows that can be compared."""
    return msgspec.to_builtins(rows, str_keys=True)


async def roll(store: Store, queue: QueueRef) -> None:
    """Fold all there is."""
    while await Roller(store, queue).tick():
        pass


async def test_rollups_are_a_plain_fold_of_the_events(store: Store, queue: QueueRef) -> None:
    await work(store, queue)
    await roll(store, queue)
    wanted = await folded_plainly(store, queue)
    found = await kept(store.rollups, queue)

    assert plain(found) == plain(wanted)
    assert len(found[MINUTE_MS]) > 1


async def test_three_that_fold_at_once_fold_every_event_once(store: Store, queue: QueueRef) -> None:
    """While events are still written."""
    await asyncio.gather(work(store, queue), *(roll(store, queue) for _ in range(3)))
    await asyncio.gather(*(roll(store, queue) for _ in range(3)))

    assert plain(await kept(store.rollups, queue)) == plain(await folded_plainly(store, queue))


class _Killed:
    """The key-value entries of a process that is killed before, or just after, one of its changes."""

    def __init__(self, real: Any, changes: int, *, after: bool) -> None:
        self._real, self._left, self._after = real, changes, after

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._real, name)
        return self._dying(call) if name in ("put_entry", "delete_entry") else call

    def _dying(self, call: Any) -> Any:
        async def change(*args: Any, **given: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise StoreUnavailableError("killed")
            answer = await call(*args, **given)
            if self._left < 0:
                raise StoreUnavailableError("killed")
            return answer

        return change


class _With:
    """A store whose rollups are others."""

    def __init__(self, store: Store, rollups: RollupEntries) -> None:
        self._store = store
        self.rollups = rollups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_fold_that_is_killed_at_any_step_is_finished_by_the_next(
    store: Store, queue: QueueRef, *, after: bool
) -> None:
    """Each process is killed at its next change but a few: in between every step is cut once."""
    await work(store, queue, turns=3)
    whole = RollupEntries(store.key_value, store.queues)
    deaths = 0
    for changes in [*range(8), *range(8)]:
        dying = RollupEntries(_Killed(store.key_value, changes, after=after), store.queues)
        try:
            await roll(_With(store, dying), queue)  # type: ignore[arg-type]
        except StoreUnavailableError:
            deaths += 1
        begun = (await kept(whole, queue))[HOUR_MS]
        position = await whole.rollup_position(queue)
        assert position is not None
        events = await store.events.read_events(queue, limit=10_000)
        many = next((n for n, each in enumerate(events, 1) if each.cursor == position.cursor), 0)
        counted = [row.counts.get("enqueue", 0) for tasks in begun.values() for row in tasks.values()]
        assert sum(counted) == sum(each.move == "enqueue" for each in events[:many])
    await roll(_With(store, whole), queue)  # type: ignore[arg-type]

    assert deaths >= 5
    assert plain(await kept(whole, queue)) == plain(await folded_plainly(store, queue))


async def test_a_step_from_another_position_is_refused(store: Store, queue: QueueRef) -> None:
    await work(store, queue, turns=1)
    events = await store.events.read_events(queue, limit=3)
    deltas, _ = fold(FoldState(), events)
    first = await store.rollups.fold(queue, "0", events[-1].cursor, deltas)
    again = await store.rollups.fold(queue, "0", events[-1].cursor, deltas)
    position = await store.rollups.rollup_position(queue)

    assert (first, again) == (True, False)
    assert position is not None
    assert position.cursor == events[-1].cursor


async def test_events_that_were_trimmed_before_they_were_folded_are_a_gap(
    store: Store, queue: QueueRef
) -> None:
    await work(store, queue, turns=2)
    _, last = await store.events.event_range(queue)
    await store.events.trim(queue, through=last - 2)
    left = await store.events.read_events(queue, last - 2)
    await roll(store, queue)
    position = await store.rollups.rollup_position(queue)
    found = await kept(store.rollups, queue)

    assert position is not None
    assert [gap.until for gap in position.state.gaps] == [left[0].at]
    counts = [row.counts for tasks in found[HOUR_MS].values() for row in tasks.values()]
    assert sum(sum(each.values()) for each in counts) >= len(left)


async def test_old_rollups_are_removed_minutes_before_hours(store: Store, queue: QueueRef) -> None:
    await work(store, queue, turns=1)
    await roll(store, queue)
    await store.clock.advance_clock(KEPT_MS[MINUTE_MS] + 2 * HOUR_MS)
    await roll(store, queue)
    later = await kept(store.rollups, queue)
    await store.clock.advance_clock(KEPT_MS[HOUR_MS])
    await roll(store, queue)

    assert later[MINUTE_MS] == {}
    assert len(later[HOUR_MS]) >= 1
    assert await kept(store.rollups, queue) == {span: {} for span in SPANS}


@needs(Part.DELETION)
async def test_rollups_of_a_deleted_queue_are_those_of_no_other(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a")])
    await roll(store, queue)
    await store.moves.delete(queue, ["a"])
    await store.queues.delete_queue(queue)
    gone = await store.rollups.rollup_position(queue)
    refused = await store.rollups.fold(queue, "0", "1", Deltas(FoldState()))
    await enqueue(store, queue, [new_job("b")])
    await roll(store, queue)

    assert (gone, refused) == (None, False)
    assert plain(await kept(store.rollups, queue)) == plain(await folded_plainly(store, queue))
