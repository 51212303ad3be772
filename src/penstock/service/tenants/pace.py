"""Rates of tenants that all processes of the service share: each takes slices of them from the store."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from penstock.service.errors import QuotaError
from penstock.stores.protocol import Clock, Shelves
from penstock.stores.values import EVERYONE

SHELF: Final = "paces"
BURST_SECONDS: Final = 1.0
"""What a tenant that was quiet may use at once, beside what it may use then."""
SLICE_SECONDS: Final = 0.25
"""How much of a rate a process takes at a time; what it does not use within twice as long is gone."""
_TRIES: Final = 100


class _Place(Shelves, Clock, Protocol):
    """What is needed of a store."""


class _Slice:
    """What this process has taken and not used yet."""

    def __init__(self) -> None:
        self.left = 0.0
        self.until = 0.0
        self.lock = asyncio.Lock()


class Pace:
    """Lets so many through a second. The store holds one number per tenant: the time up to which it has used.

    Who asks for more than is left gets all of it and owes the rest: nobody passes until that is paid. So the
    rate holds for batches of any size, and no batch is too large for ever.
    """

    def __init__(self, store: _Place, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._slices: dict[str, _Slice] = {}

    async def take(self, tenant: str, rate: float, many: int) -> None:
        """Use so many of the tenant's; QuotaError says when it may try again."""
        mine = self._slices.setdefault(tenant, _Slice())
        async with mine.lock:
            left = mine.left if self._clock() < mine.until else 0.0
            if left < many:
                left += await self._slice(tenant, rate, many - left)
                mine.until = self._clock() + 2 * SLICE_SECONDS
            mine.left = left - many

    async def check(self, tenant: str, rate: float) -> None:
        """QuotaError when not even one could be taken now. Nothing is used."""
        mine = self._slices.get(tenant)
        if mine is not None and mine.left >= 1 and self._clock() < mine.until:
            return
        entry = await self._store.kept(EVERYONE, SHELF, tenant)
        if entry is not None:
            _check_used(int(entry.body), await self._store.now() * 1000, rate)

    async def is_open(self, tenant: str) -> bool:
        """True when the tenant owes nothing of its rate."""
        mine = self._slices.get(tenant)
        if mine is not None and mine.left > 0 and self._clock() < mine.until:
            return True
        entry = await self._store.kept(EVERYONE, SHELF, tenant)
        return entry is None or int(entry.body) <= await self._store.now() * 1000

    async def _slice(self, tenant: str, rate: float, least: float) -> float:
        """Take this much of the rate, or as much as a slice holds and is left."""
        for _ in range(_TRIES):
            entry = await self._store.kept(EVERYONE, SHELF, tenant)
            now = await self._store.now() * 1000
            used = 0 if entry is None else int(entry.body)
            _check_used(used, now, rate)
            used = max(used, now - round(BURST_SECONDS * 1e6))
            many = max(least, min(rate * SLICE_SECONDS, (now - used) * rate / 1e6))
            body = b"%d" % (used + round(many / rate * 1e6))
            version = 0 if entry is None else entry.version
            if await self._store.keep(EVERYONE, SHELF, tenant, body, expected=version) is not None:
                return many
        raise QuotaError("jobs_per_second: too many use the tenant's rate at once")


def _check_used(used: int, now: int, rate: float) -> None:
    if used > now:
        wait = (used - now) / 1e6
        raise QuotaError(f"jobs_per_second: the tenant may enqueue {rate:g} a second", wait)
