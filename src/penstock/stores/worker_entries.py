"""The registered workers of a tenant, kept as key-value entries that count while their lease holds."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from penstock.core.errors import InvalidError
from penstock.core.job import QueueRef
from penstock.core.names import check_worker
from penstock.stores.bounds import ENTRY_LIMIT, MAX_LEASE_MS
from penstock.stores.corruption import ROW_ERRORS
from penstock.stores.protocol import Clock, KeyValue
from penstock.stores.values import OrderKind, SeenVersion, Topic, WorkerEntry, WorkerOrder
from penstock.stores.worker_versions import WorkerVersions

KIND: Final = "workers"
ORDERS: Final = "worker_orders"
CLOCK_SLACK_MS: Final = 60_000
"""A lease that ends later than its own duration and this much from now has ended: the clock was set back."""


Notify = Callable[[QueueRef, Topic], Awaitable[None]]
"""Notifies the subscribers of a queue."""
VERSION: Final = 2
"""The version of a stored entry. Readers take from a newer one what they understand."""


class _LeasedEntry(msgspec.Struct, frozen=True):
    """An entry as it is stored; times by the store's clock."""

    worker: WorkerEntry
    until: int
    lease_ms: int
    v: int = 1

    def holds(self, now: int) -> bool:
        return now < self.until <= now + self.lease_ms + CLOCK_SLACK_MS

    @property
    def shown(self) -> WorkerEntry:
        return msgspec.structs.replace(self.worker, renewed_at=self.until - self.lease_ms)


class _Order(msgspec.Struct, frozen=True):
    """An order as it is stored, for one process."""

    instance: str
    order: WorkerOrder


class _Lease(msgspec.Struct, frozen=True):
    """What an entry of every version has."""

    worker: dict[str, Any]
    until: int
    lease_ms: int
    v: int = 1


UNREADABLE: Final = (*ROW_ERRORS, RecursionError)
"""What reading an entry raises that somebody has damaged, or of which another version tells other things."""
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_LeasedEntry)
_LEASE_DECODER: Final = msgspec.json.Decoder(_Lease)
_ORDER_DECODER: Final = msgspec.json.Decoder(_Order)
_FIELDS: Final = msgspec.structs.fields(WorkerEntry)
_UNKNOWN: Final[dict[str, Any]] = {"host": "", "pid": 0, "version": "", "queues": {}, "tasks": ()}
"""What stands in the place of fields that an entry of another version has not, or has in another form."""


class WorkerEntries:
    """The part `Workers` of a store, on top of its parts `KeyValue` and `Clock`."""

    def __init__(self, key_value: KeyValue, clock: Clock, notify: Notify) -> None:
        self._key_value = key_value
        self._clock = clock
        self._notify = notify
        self._versions = WorkerVersions(key_value, clock)

    async def register_worker(self, tenant: str, worker: WorkerEntry, lease_ms: int) -> None:
        """Register a worker, or renew its lease."""
        check_worker("worker", worker.name)
        if not 0 < lease_ms <= MAX_LEASE_MS:
            raise InvalidError("lease_ms", lease_ms, f"a number from 1 to {MAX_LEASE_MS}")
        bare = msgspec.structs.replace(worker, renewed_at=0)
        now = await self._clock.now()
        entry = _LeasedEntry(bare, now + lease_ms, lease_ms, VERSION)
        await self._key_value.put_entry(tenant, KIND, _key_of(worker.name), _ENCODER.encode(entry))
        await self._versions.note(tenant, worker, now)

    async def unregister_worker(self, tenant: str, worker: str) -> bool:
        """Remove a worker that ends; False when it was not registered."""
        await self._key_value.delete_entry(tenant, ORDERS, _key_of(worker))
        return await self._key_value.delete_entry(tenant, KIND, _key_of(worker))

    async def list_workers(self, tenant: str) -> list[WorkerEntry]:
        """The workers whose lease holds, by name. Entries that have ended are removed on the way."""
        found: list[WorkerEntry] = []
        now, after = await self._clock.now(), ""
        while True:
            page = await self._key_value.list_entries(tenant, KIND, after=after, limit=ENTRY_LIMIT)
            for stored in page:
                entry = _entry_of(stored.body)
                if entry is None:
                    # Not an entry that this version can tell the end of: another one may.
                    continue
                if entry.holds(now):
                    found.append(entry.shown)
                else:
                    # Only as it was read: a worker may have come back meanwhile.
                    if await self._key_value.delete_entry(tenant, KIND, stored.name, expected=stored.version):
                        await self._key_value.delete_entry(tenant, ORDERS, stored.name)
            if len(page) < ENTRY_LIMIT:
                return sorted(found, key=lambda each: each.name)
            after = page[-1].name

    async def order_worker(
        self, tenant: str, worker: str, order: OrderKind, *, by: str | None = None
    ) -> bool:
        """Leave an order for a registered worker; False when there is none of this name that takes one."""
        check_worker("worker", worker)
        stored = await self._key_value.get_entry(tenant, KIND, _key_of(worker))
        entry = None if stored is None else _entry_of(stored.body)
        now = await self._clock.now()
        if entry is None or not entry.holds(now) or entry.worker.instance is None:
            return False
        body = _ENCODER.encode(_Order(entry.worker.instance, WorkerOrder(order, now, by)))
        await self._key_value.put_entry(tenant, ORDERS, _key_of(worker), body)
        for queue in list(entry.worker.queues)[:1]:
            await self._notify(QueueRef(tenant, queue), Topic.CONTROL)
        return True

    async def worker_order(self, tenant: str, worker: str, instance: str) -> WorkerOrder | None:
        """The order for this worker process, if there is one."""
        stored = await self._key_value.get_entry(tenant, ORDERS, _key_of(worker))
        if stored is None:
            return None
        try:
            found = _ORDER_DECODER.decode(stored.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Of a version that this one does not understand.
            return None
        return found.order if found.instance == instance else None

    async def list_versions(self, tenant: str) -> list[SeenVersion]:
        """The versions of code that workers ran lately."""
        return await self._versions.list(tenant)


def _key_of(worker: str) -> str:
    """The name of a worker's entry: a worker's own name has characters that a key has not."""
    return hashlib.blake2b(worker.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _entry_of(body: bytes) -> _LeasedEntry | None:
    """The entry, as far as it is understood; None where it does not even tell its name and its lease."""
    try:
        return _DECODER.decode(body)
    except UNREADABLE:
        pass
    try:
        lease = _LEASE_DECODER.decode(body)
        name = check_worker("worker", lease.worker.get("name"))
    except UNREADABLE:
        return None
    known = _UNKNOWN | {"name": name}
    for field in _FIELDS:
        if field.name not in lease.worker:
            continue
        try:
            known[field.name] = msgspec.convert(lease.worker[field.name], field.type)
        except msgspec.ValidationError:
            # The field has another form in that version.
            continue
    return _LeasedEntry(WorkerEntry(**known), lease.until, lease.lease_ms, lease.v)
