"""Removes what was kept long enough: ended jobs, and events by age and count."""

from typing import Final

from penstock.core.errors import CursorLostError
from penstock.core.job import QueueRef
from penstock.stores.bounds import PRUNE_LIMIT
from penstock.stores.protocol import Store

EVENTS_KEPT: Final = 1_000_000
EVENTS_AGE: Final = 7 * 24 * 3600.0
EVENTS_HELD: Final = 10 * EVENTS_KEPT
"""What is kept for readers that are behind; older ones are cut ahead of them."""
TRIM_LIMIT: Final = 5_000
"""Events forgotten in one call, so that no call holds the store for long."""


class Pruner:
    """Prunes ended jobs whose retention is over."""

    def __init__(self, store: Store, queue: QueueRef) -> None:
        self._store = store
        self._queue = queue

    async def tick(self) -> bool:
        """Prune one batch; True when there may be more."""
        return await self._store.moves.prune(self._queue, PRUNE_LIMIT) >= PRUNE_LIMIT


class Trimmer:
    """Forgets events older than `age` seconds, and the oldest ones over `kept`.

    What a registered reader has not read stays, up to `held` events. So does the event that its cursor
    names: it shows that the log is still the same one.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        *,
        kept: int = EVENTS_KEPT,
        age: float = EVENTS_AGE,
        held: int = EVENTS_HELD,
    ) -> None:
        self._store = store
        self._queue = queue
        self._kept = kept
        self._age_ms = round(age * 1000)
        self._held = held

    async def tick(self) -> bool:
        """Trim one batch; True when there may be more."""
        first, last = await self._store.events.event_range(self._queue)
        if last < first:
            return False
        now = await self._store.clock.now()
        cutoff = now - self._age_ms
        # Nearly always the oldest event is young enough, and one read is all.
        if last - self._kept < first and not await self._is_older(first, cutoff):
            return False
        free = min(last, await self._free(last, now))
        ceiling = min(free, first + TRIM_LIMIT - 1)
        through = min(last - self._kept, ceiling)
        if through < ceiling:
            through = await self._older(max(first, through + 1), ceiling, cutoff)
        if through < first:
            return False
        cut = await self._store.events.trim(self._queue, through=through)
        # A store that keeps events together forgets none of those that are needed in part.
        return cut > 0 and through >= ceiling and ceiling < free

    async def _free(self, last: int, now: int) -> int:
        """The highest number that no reader needs. Readers whose lease is over are forgotten."""
        readers = await self._store.readers.list_readers(self._queue)
        current = [reader for reader in readers if reader.kept_until > now]
        if len(current) < len(readers):
            await self._store.readers.remove_expired_readers(self._queue)
        return max(last - self._held, min((reader.seq - 1 for reader in current), default=last))

    async def _older(self, first: int, last: int, cutoff: int) -> int:
        """The highest number up to `last` whose event is older than the cutoff; events are in order of time.

        The first one is looked at first: where the count alone cuts, it is young enough.
        """
        if not await self._is_older(first, cutoff):
            return first - 1
        low, high = first, last
        while low < high:
            middle = (low + high + 1) // 2
            if await self._is_older(middle, cutoff):
                low = middle
            else:
                high = middle - 1
        return low

    async def _is_older(self, number: int, cutoff: int) -> bool:
        try:
            found = await self._store.events.read_events(self._queue, after=number - 1, limit=1)
        except CursorLostError:
            # Another process trimmed it in the meantime.
            return True
        return bool(found) and found[0].at < cutoff
