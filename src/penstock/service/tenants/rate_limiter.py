"""Rates of tenants that all processes of the service share: each takes slices of them from the store."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from penstock.core.limits import Rate
from penstock.service.errors import QuotaError
from penstock.stores.protocol import HasClock, HasKeyValue
from penstock.stores.values import EVERYONE

NAMESPACE: Final = "paces"
BURST_SECONDS: Final = 1.0
"""What a tenant that was quiet may use at once, beside what it may use then."""
SLICE_SECONDS: Final = 0.25
"""How much of a rate a process takes at a time; what it does not use within twice as long is gone."""
SLOWEST: Final = 1e-6
"""The lowest rate that a `Rate` can say: one in eleven days."""
_TRIES: Final = 100


class _Backend(HasKeyValue, HasClock, Protocol):
    """The parts of a store that this module uses."""


class _Slice:
    """The share of a rate that this process has taken and not used yet."""

    def __init__(self) -> None:
        self.left = 0.0
        self.until = 0.0
        self.lock = asyncio.Lock()


class RateLimiter:
    """Lets so many through a second. The store holds one number per tenant: the time up to which it has used.

    A request for more than is left passes and owes the rest: later ones are refused until it is paid. So the
    rate holds for batches of any size, and no batch is too large for ever.
    """

    def __init__(self, store: _Backend, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._slices: dict[str, _Slice] = {}

    async def take(self, tenant: str, rate: float, many: int) -> None:
        """Use so many jobs of the tenant's rate; QuotaError says when to retry."""
        mine = self._slices.setdefault(tenant, _Slice())
        async with mine.lock:
            left = mine.left if self._clock() < mine.until else 0.0
            if left < many:
                left += await self._slice(tenant, rate, many - left)
                mine.until = self._clock() + 2 * SLICE_SECONDS
            mine.left = left - many

    async def check(self, tenant: str, rate: float) -> None:
        """QuotaError when not even one job could be taken now; uses nothing."""
        mine = self._slices.get(tenant)
        if mine is not None and mine.left >= 1 and self._clock() < mine.until:
            return
        entry = await self._store.key_value.get_entry(EVERYONE, NAMESPACE, tenant)
        if entry is not None:
            _check_used(int(entry.body), await self._store.clock.now() * 1000, rate)

    async def is_open(self, tenant: str) -> bool:
        """True when the tenant owes nothing of its rate."""
        mine = self._slices.get(tenant)
        if mine is not None and mine.left > 0 and self._clock() < mine.until:
            return True
        entry = await self._store.key_value.get_entry(EVERYONE, NAMESPACE, tenant)
        return entry is None or int(entry.body) <= await self._store.clock.now() * 1000

    async def _slice(self, tenant: str, rate: float, least: float) -> float:
        """Take this much of the rate, or as much as a slice holds and is left."""
        for _ in range(_TRIES):
            entry = await self._store.key_value.get_entry(EVERYONE, NAMESPACE, tenant)
            now = await self._store.clock.now() * 1000
            used = 0 if entry is None else int(entry.body)
            _check_used(used, now, rate)
            since = now - round(BURST_SECONDS * 1e6)
            limit = Rate.per_second(max(rate, SLOWEST))
            left = (now - max(used, since)) / limit.interval_us
            many = max(least, min(rate * SLICE_SECONDS, left))
            body = b"%d" % round(limit.after(used, since, 1) + (many - 1) * limit.interval_us)
            version = 0 if entry is None else entry.version
            if (
                await self._store.key_value.put_entry(EVERYONE, NAMESPACE, tenant, body, expected=version)
                is not None
            ):
                return many
        raise QuotaError("jobs_per_second: too many use the tenant's rate at once")


def _check_used(used: int, now: int, rate: float) -> None:
    if used > now:
        wait = (used - now) / 1e6
        raise QuotaError(f"jobs_per_second: the tenant may enqueue {rate:g} a second", wait)
