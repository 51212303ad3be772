"""Looks through a queue for what somebody has damaged; the script that mends it looks once more."""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.corruption import DECODE_ERRORS
from penstock.stores.redis.codec.jobs import Record, read_whole
from penstock.stores.redis.codec.lanes import read_declaration, read_lanes
from penstock.stores.redis.codec.replies import Damage, damaged_record
from penstock.stores.redis.keys import TIERS, QueueKeys, keys_of, lane_line
from penstock.stores.redis.server import Server
from penstock.stores.redis.shapes import pairs

CHUNK: Final = 500
_PRUNABLE: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
Records = Mapping[bytes, Record]


async def damages_of(server: Server, queue: QueueRef) -> list[Damage]:
    """Records that cannot be read, entries of indexes without their job, and jobs without their entry."""
    keys = keys_of(queue)
    packed = await _all(server, keys.records)
    records: dict[bytes, Record] = {}
    found: list[Damage] = []
    for job, each in packed.items():
        try:
            records[job] = read_whole(each)
        except DECODE_ERRORS as error:
            found.append(damaged_record(job, each, error))
    payloads = set(await server.command("HKEYS", keys.payloads))
    for job in [each for each in records if each not in payloads]:
        del records[job]
        found.append(damaged_record(job, packed[job], ValueError("its payload is missing")))
    for name, index, wanted in _indexes(keys, records):
        members = set(await server.command("ZRANGE", index, 0, -1))
        what = f"an entry among the {name} without a record"
        found += [Damage(name, each, wanted.job_of(each), what) for each in sorted(members - wanted.entries)]
        missing = {wanted.job_of(each) for each in wanted.entries - members}
        found += [_missing(job, records[job], name) for job in sorted(missing)]
    found += await _keys(server, keys, packed)
    return found + await _pending(server, keys, records)


class _Wanted:
    """The entries that an index should have."""

    def __init__(self, entries: Iterable[bytes], *, has_places: bool = False) -> None:
        self.entries = frozenset(entries)
        self._has_places = has_places

    def job_of(self, entry: bytes) -> bytes:
        return entry.partition(b" ")[2] or entry if self._has_places else entry


def _indexes(keys: QueueKeys, records: Records) -> list[tuple[str, str, _Wanted]]:
    def of(*states: State) -> _Wanted:
        return _Wanted(job for job, record in records.items() if record.state in states)

    delayed = (
        b"%016d %s" % (record.place, job) for job, record in records.items() if record.state is State.DELAYED
    )
    return [
        ("jobs", keys.jobs, _Wanted(records)),
        ("blocked", keys.blocked, of(State.BLOCKED)),
        ("delayed", keys.delayed, _Wanted(delayed, has_places=True)),
        ("active", keys.active, of(State.ACTIVE)),
        ("prunable", keys.prunable, of(*_PRUNABLE)),
        *((str(state), keys.ended(state), of(state)) for state in State if state.is_ended),
    ]


async def _keys(server: Server, keys: QueueKeys, packed: Mapping[bytes, bytes]) -> list[Damage]:
    """Idempotency keys that are held for jobs which are neither there nor set aside."""
    aside = set(await server.command("HKEYS", keys.quarantine))
    return [
        Damage("key", key, parts[0], "an idempotency key of a job that is gone")
        for key, held in (await _all(server, keys.holders)).items()
        # One whose job is gone as it should be has its end beside it.
        if len(parts := held.split(b" ")) == 2 and parts[0] not in packed and parts[0] not in aside
    ]


async def _pending(server: Server, keys: QueueKeys, records: Records) -> list[Damage]:
    lines: list[int | str] = list(TIERS)
    declared = await server.command("HGET", keys.meta, "declared")
    if declared is not None and read_declaration(declared).mode.has_keys:
        lanes = await _all(server, keys.lanes)
        lines += [lane_line(lane.number) for lane in read_lanes(lanes).values()]
    lists = await server.commands([("LRANGE", keys.pending(line), 0, -1) for line in lines])
    notes = await server.commands([("ZRANGE", keys.gone(line), 0, -1) for line in lines])
    found: list[Damage] = []
    standing: set[bytes] = set()
    for line, entries, gone in zip(lines, lists, notes, strict=True):
        left = set(gone)
        for entry in (each for each in entries if each not in left):
            job = entry.partition(b" ")[2] or entry
            standing.add(entry)
            if job not in records:
                found.append(
                    Damage(f"pending:{line}", entry, job, "an entry among the pending without a record")
                )
    pending = {job: record for job, record in records.items() if record.state is State.PENDING}
    found += [
        _missing(job, record, "pending")
        # They go to the back of their list one by one: in their order.
        for job, record in sorted(pending.items(), key=lambda item: item[1].place)
        if b"%d %s" % (record.place, job) not in standing
    ]
    return found


def _missing(job: bytes, record: Record, index: str) -> Damage:
    return Damage("index", str(record.place).encode(), job, f"a job that was missing among the {index}")


async def _all(server: Server, key: str) -> dict[bytes, bytes]:
    """A whole hash, in steps."""
    found: dict[bytes, bytes] = {}
    cursor = b"0"
    while True:
        cursor, flat = await server.command("HSCAN", key, cursor, "COUNT", CHUNK)
        found.update(pairs(flat))
        if cursor == b"0":
            return found
