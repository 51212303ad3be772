"""Bounds on how many named things a tenant has, which hold over all processes of the service."""

import asyncio
import hashlib
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from penstock.core.errors import StoreTimeoutError
from penstock.core.retry_pause import RetryPause
from penstock.service.errors import BusyError, QuotaError
from penstock.stores.protocol import HasClock, HasKeyValue
from penstock.stores.values import EVERYONE

HELD_SECONDS: Final = 60.0
"""How long a reservation counts whose process died before it could take the reservation back."""
LONGEST: Final = 30.0
"""Seconds that adding may take: well within the time for which the reservation counts."""
TRIES: Final = 200
REMOVED_SECONDS: Final = 30.0
"""How long a name that is being removed counts on: a process that knows it may add it again without asking.

Longer than a process takes a queue for known, by the time of the removal and of a request being handled.
"""
_REMOVED_GRAIN_MS: Final = 5_000
"""Names whose time ends within the same moment share a reservation, so that many have room in an entry."""
AGAIN: Final = 60.0
"""Seconds after which it may be tried again: somebody has to remove something first."""
MOST_RESERVED: Final = 3_500
"""Names that are being added to one tenant at the same time: as many as an entry of the store can hold."""
_PAUSE: Final = RetryPause(0.002, 0.05)


class _Backend(HasKeyValue, HasClock, Protocol):
    """The parts of a store that this module uses."""


class _Reservation(msgspec.Struct, frozen=True, array_like=True):
    """Names that a process is about to add, as digests; they count until then by the store's clock."""

    id: str
    until: int
    digests: tuple[str, ...]


class Reservations:
    """Names that are about to be added, in one entry of the store per tenant and kind.

    A process that adds names reads the entry, then counts what is there, and writes its own names into the
    entry only if no other process changed the entry since. What another process adds meanwhile is either in
    the entry, or
    in the count, or has changed the entry. An entry stays when it is empty: an entry that is written anew
    could not be told from one that never was there.
    """

    def __init__(self, store: _Backend) -> None:
        self._store = store
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def reserve(
        self,
        tenant: str,
        kind: str,
        names: Collection[str],
        most: int,
        existing: Callable[[], Awaitable[Collection[str]]],
    ) -> AsyncIterator[None]:
        """Room for these names for the time of the block, which adds them; QuotaError when there is none.

        `kind` is the name of the quota, and `existing` says which names the tenant has.
        """
        async with self._lock(tenant, kind):
            mine = await self._write(tenant, kind, names, most, existing)
            limit = asyncio.timeout(LONGEST)
            try:
                async with limit:
                    yield
            except TimeoutError:
                if not limit.expired():
                    raise
                raise StoreTimeoutError(f"the store took more than {LONGEST:g} s to add {kind}") from None
            finally:
                if mine is not None:
                    await self._take_back(tenant, kind, mine)

    async def removing(self, tenant: str, kind: str, name: str) -> None:
        """Before a name is removed: let it count for REMOVED_SECONDS more; BusyError where too many do."""
        async with self._lock(tenant, kind):
            for turn in range(TRIES):
                version, reserved = await self._read(tenant, kind)
                now = await self._store.clock.now()
                until = now + round(REMOVED_SECONDS * 1000)
                until += -until % _REMOVED_GRAIN_MS
                mine = f"removed-{until}"
                live = [each for each in reserved if each.until > now]
                digests = _digests([name]).union(*(each.digests for each in live if each.id == mine))
                live = [each for each in live if each.id != mine]
                if sum(len(each.digests) for each in live) + len(digests) > MOST_RESERVED:
                    break
                live.append(_Reservation(mine, until, tuple(sorted(digests))))
                if await self._change(tenant, kind, live, version):
                    return
                await _pause(turn)
        raise BusyError(f"{kind}: too many are being removed at the same time")

    def _lock(self, tenant: str, kind: str) -> asyncio.Lock:
        lock = self._locks.get((tenant, kind))
        if lock is None:
            lock = self._locks[tenant, kind] = asyncio.Lock()
        return lock

    async def _write(
        self,
        tenant: str,
        kind: str,
        names: Collection[str],
        most: int,
        existing: Callable[[], Awaitable[Collection[str]]],
    ) -> str | None:
        """The id of the reservation; None when all of the names are there already."""
        mine, wanted = secrets.token_hex(8), _digests(names)
        for turn in range(TRIES):
            version, reserved = await self._read(tenant, kind)
            there = _digests(await existing())
            new = wanted - there
            if not new:
                return None
            now = await self._store.clock.now()
            live = [each for each in reserved if each.until > now]
            others = there.union(*(each.digests for each in live))
            if len(others | new) > most:
                found = f"{len(others)} and {len(new - others)} more"
                raise QuotaError.of(kind, found, f"at most {most}: the tenant's quota", AGAIN)
            if sum(len(each.digests) for each in live) + len(new) > MOST_RESERVED:
                break
            until = now + round(HELD_SECONDS * 1000)
            live.append(_Reservation(mine, until, tuple(sorted(new))))
            if await self._change(tenant, kind, live, version):
                return mine
            await _pause(turn)
        raise BusyError(f"{kind}: too many are being added at the same time")

    async def _take_back(self, tenant: str, kind: str, mine: str) -> None:
        for turn in range(TRIES):
            version, reserved = await self._read(tenant, kind)
            left = [each for each in reserved if each.id != mine]
            if len(left) == len(reserved) or await self._change(tenant, kind, left, version):
                return
            await _pause(turn)

    async def _read(self, tenant: str, kind: str) -> tuple[int, list[_Reservation]]:
        entry = await self._store.key_value.get_entry(EVERYONE, _namespace(kind), tenant)
        if entry is None:
            return 0, []
        return entry.version, msgspec.json.decode(entry.body, type=list[_Reservation])

    async def _change(self, tenant: str, kind: str, reserved: list[_Reservation], version: int) -> bool:
        body = msgspec.json.encode(reserved)
        return (
            await self._store.key_value.put_entry(EVERYONE, _namespace(kind), tenant, body, expected=version)
            is not None
        )


def _digests(names: Collection[str]) -> set[str]:
    """Short and of one length, so that many have room in an entry."""
    return {hashlib.blake2b(name.encode(), digest_size=6).hexdigest() for name in names}


def _namespace(kind: str) -> str:
    return f"reserved-{kind}"


async def _pause(turn: int) -> None:
    await asyncio.sleep(_PAUSE.after(turn, random.uniform))
