"""The registered workers of a tenant, kept as key-value entries that count while their lease holds."""

import hashlib
from typing import Any, Final

import msgspec

from penstock.core.errors import InvalidError
from penstock.core.names import check_worker
from penstock.stores.bounds import ENTRY_LIMIT, MAX_LEASE_MS
from penstock.stores.corruption import ROW_ERRORS
from penstock.stores.protocol import Clock, KeyValue
from penstock.stores.values import WorkerEntry

KIND: Final = "workers"
CLOCK_SLACK_MS: Final = 60_000
"""A lease that ends later than its own duration and this much from now has ended: the clock was set back."""


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
_FIELDS: Final = msgspec.structs.fields(WorkerEntry)
_UNKNOWN: Final[dict[str, Any]] = {"host": "", "pid": 0, "version": "", "queues": {}, "tasks": ()}
"""What stands in the place of fields that an entry of another version has not, or has in another form."""


class WorkerEntries:
    """The part `Workers` of a store, on top of its parts `KeyValue` and `Clock`."""

    def __init__(self, key_value: KeyValue, clock: Clock) -> None:
        self._key_value = key_value
        self._clock = clock

    async def register_worker(self, tenant: str, worker: WorkerEntry, lease_ms: int) -> None:
        """Register a worker, or renew its lease."""
        check_worker("worker", worker.name)
        if not 0 < lease_ms <= MAX_LEASE_MS:
            raise InvalidError("lease_ms", lease_ms, f"a number from 1 to {MAX_LEASE_MS}")
        bare = msgspec.structs.replace(worker, renewed_at=0)
        entry = _LeasedEntry(bare, await self._clock.now() + lease_ms, lease_ms, VERSION)
        await self._key_value.put_entry(tenant, KIND, _key_of(worker.name), _ENCODER.encode(entry))

    async def unregister_worker(self, tenant: str, worker: str) -> bool:
        """Remove a worker that ends; False when it was not registered."""
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
                    await self._key_value.delete_entry(tenant, KIND, stored.name, expected=stored.version)
            if len(page) < ENTRY_LIMIT:
                return sorted(found, key=lambda each: each.name)
            after = page[-1].name


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
