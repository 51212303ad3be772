"""The store's fsck: records and indexes have to tell the same story."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.limits import Mode
from penstock.core.states import State
from penstock.stores.damaged import DAMAGED
from penstock.stores.redis.keys import TIERS, QueueKeys, keys_of, lane_line
from penstock.stores.redis.lanes import Lane, read_declaration, read_lane
from penstock.stores.redis.reads import CHUNK, scored
from penstock.stores.redis.records import Record, read_whole
from penstock.stores.redis.server import Server
from penstock.stores.redis.shapes import pairs
from penstock.stores.values import Finding

_PRUNABLE: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
Records = Mapping[str, Record]


class Inspector:
    """Compares what stands in a queue's records with what stands in its indexes."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def check(self, queue: QueueRef) -> list[Finding]:
        """What should not be. A queue in use changes during a look: only what two looks saw counts."""
        first = await self._look(queue)
        if not first:
            return []
        again = set(await self._look(queue))
        return [finding for finding in first if finding in again]

    async def _look(self, queue: QueueRef) -> list[Finding]:
        keys = keys_of(queue)
        packed = await self._all(keys.records)
        records, unreadable = _read(packed)
        lanes = await self._lanes(keys)
        return [
            *unreadable,
            *await self._apart(keys, records, packed.keys()),
            *await self._pending(keys, records, lanes),
            *await self._keys(keys, records, lanes),
            *await self._blocked(keys, records),
            *await self._delayed(keys, records),
            *await self._active(keys, records),
            *await self._ended(keys, records),
            *await self._events(keys),
        ]

    async def _lanes(self, keys: QueueKeys) -> dict[str, Lane]:
        declared = await self._server.command("HGET", keys.meta, "declared")
        if declared is None or not read_declaration(declared).mode.has_keys:
            return {}
        return {key: read_lane(packed) for key, packed in (await self._all(keys.lanes)).items()}

    async def _all(self, key: str) -> dict[str, bytes]:
        """A whole hash, in steps."""
        found: dict[str, bytes] = {}
        cursor = 0
        while True:
            answer = await self._server.command("HSCAN", key, cursor, "COUNT", CHUNK)
            found.update(
                (name.decode(errors="backslashreplace"), value) for name, value in pairs(answer[1]).items()
            )
            cursor = int(answer[0])
            if cursor == 0:
                return found

    async def _apart(self, keys: QueueKeys, records: Records, known: Set[str]) -> list[Finding]:
        """What stands under a job's id beside its record."""
        listed = {
            job.decode(errors="backslashreplace")
            for job in await self._server.command("ZRANGE", keys.jobs, 0, -1)
        }
        out = [
            *_each("a record that is not in the list of jobs", records.keys() - listed),
            *_each("an entry in the list of jobs without a record", listed - known),
        ]
        for name in ("payloads", "results", "errors", "progress"):
            held = {
                job.decode(errors="backslashreplace")
                for job in await self._server.command("HKEYS", getattr(keys, name))
            }
            out += _each(f"one of the {name} without a record", held - known)
            if name == "payloads":
                out += _each("a record without a payload", records.keys() - held)
        return out

    async def _pending(self, keys: QueueKeys, records: Records, lanes: Mapping[str, Lane]) -> list[Finding]:
        out: list[Finding] = []
        by_key = {key: lane_line(lane.number) for key, lane in lanes.items()}
        lines: list[int | str] = [*TIERS, *by_key.values()]
        lists = await self._server.commands([("LRANGE", keys.pending(line), 0, -1) for line in lines])
        notes = await self._server.commands([("ZRANGE", keys.gone(line), 0, -1) for line in lines])
        claimable: Counter[str] = Counter()
        for line, entries, gone in zip(lines, lists, notes, strict=True):
            left = set(gone)
            for entry in entries:
                place, _, job = entry.decode(errors="backslashreplace").partition(" ")
                record = records.get(job)
                stands = (
                    record is not None
                    and record.state is State.PENDING
                    and str(record.place) == place
                    and line == (by_key.get(str(record.key)) if lanes else record.priority)
                )
                claimable[job] += stands
                if stands == (entry in left):
                    what = "a pending job noted as gone" if stands else "a pending entry without its job"
                    out.append(Finding(what, job))
            out += _each(
                "a note of an entry that is not there",
                (e.decode(errors="backslashreplace") for e in left - set(entries)),
            )
        for job, record in records.items():
            if record.state is State.PENDING and claimable[job] != 1:
                out.append(Finding(f"a pending job that stands {claimable[job]} times in its list", job))
        return out

    async def _keys(self, keys: QueueKeys, records: Records, lanes: Mapping[str, Lane]) -> list[Finding]:
        """Counts of keys, and that exactly those are open which could be served."""
        out: list[Finding] = []
        if not lanes:
            return out
        declared = read_declaration(await self._server.command("HGET", keys.meta, "declared"))
        waiting = Counter(str(r.key) for r in records.values() if r.state is State.PENDING)
        running = Counter(str(r.key) for r in records.values() if r.state is State.ACTIVE)
        for key, lane in lanes.items():
            if (lane.waiting, lane.running) != (waiting[key], running[key]):
                out.append(
                    Finding(
                        f"key {key!r} has {waiting[key]} waiting and {running[key]} running jobs, "
                        f"and {lane.waiting} and {lane.running} are counted"
                    )
                )
            limit = (lane.limit if declared.mode is Mode.DYNAMIC else 0) or declared.key_limit
            could_run = lane.waiting > 0 and lane.running < limit
            if could_run != (lane.turn is not False):
                out.append(Finding(f"key {key!r} {'is not' if could_run else 'is'} in line to be served"))
        for index, is_held in ((keys.ready, False), (keys.held, True)):
            rows = {
                member.decode(errors="backslashreplace")
                for member in await self._server.command("ZRANGE", index, 0, -1)
            }
            wanted = {
                f"{lane.joined:016d} {key}"
                for key, lane in lanes.items()
                if lane.turn is not False and (lane.held_until is not False) == is_held
            }
            out += [Finding(f"a turn without its key: {row!r}") for row in sorted(rows - wanted)]
            out += [Finding(f"a key without its turn: {row!r}") for row in sorted(wanted - rows)]
        out += [
            Finding(f"key {key!r} has jobs and no lane")
            for key in sorted((waiting.keys() | running.keys()) - lanes.keys())
        ]
        return out

    async def _blocked(self, keys: QueueKeys, records: Records) -> list[Finding]:
        found = {
            job.decode(errors="backslashreplace")
            for job in await self._server.command("ZRANGE", keys.blocked, 0, -1)
        }
        wanted = {job for job, record in records.items() if record.state is State.BLOCKED}
        return [
            *_each("an entry among the blocked that no record backs", found - wanted),
            *_each("a record that is missing among the blocked", wanted - found),
        ]

    async def _delayed(self, keys: QueueKeys, records: Records) -> list[Finding]:
        rows = scored(await self._server.command("ZRANGE", keys.delayed, 0, -1, "WITHSCORES"))
        found = [(member.decode(errors="backslashreplace"), int(score)) for member, score in rows]
        wanted = [
            (f"{record.place:016d} {job}", int(record.visible_at))
            for job, record in records.items()
            if record.state is State.DELAYED
        ]
        return _differences("delayed", set(found), set(wanted), lambda entry: entry.partition(" ")[2])

    async def _active(self, keys: QueueKeys, records: Records) -> list[Finding]:
        rows = scored(await self._server.command("ZRANGE", keys.active, 0, -1, "WITHSCORES"))
        found = {(member.decode(errors="backslashreplace"), int(score)) for member, score in rows}
        active = {job: record for job, record in records.items() if record.state is State.ACTIVE}
        bare = [job for job, record in active.items() if record.token is False or record.deadline is False]
        wanted = {(job, int(record.deadline)) for job, record in active.items()}
        return [*_each("an active job without a lease", bare), *_differences("active", found, wanted)]

    async def _ended(self, keys: QueueKeys, records: Records) -> list[Finding]:
        out: list[Finding] = []
        for state in (state for state in State if state.is_ended):
            rows = scored(await self._server.command("ZRANGE", keys.ended(state), 0, -1, "WITHSCORES"))
            found = {(member.decode(errors="backslashreplace"), int(score)) for member, score in rows}
            wanted = {(job, int(record.ended_at)) for job, record in records.items() if record.state is state}
            out += _differences(state, found, wanted)
        rows = scored(await self._server.command("ZRANGE", keys.prunable, 0, -1, "WITHSCORES"))
        found = {(member.decode(errors="backslashreplace"), int(score)) for member, score in rows}
        kept = {
            (job, int(record.ended_at) + record.retention_ms)
            for job, record in records.items()
            if record.state in _PRUNABLE
        }
        return [*out, *_differences("prunable", found, kept)]

    async def _events(self, keys: QueueKeys) -> list[Finding]:
        last, seq = await self._server.commands(
            [("XREVRANGE", keys.events, "+", "-", "COUNT", 1), ("HGET", keys.meta, "seq")], at_once=True
        )
        newest = int(last[0][0].partition(b"-")[0]) if last else None
        if newest is not None and newest != int(seq or 0):
            return [Finding(f"the newest event is {newest}, the queue counted {int(seq or 0)}")]
        return []


def _read(packed: Mapping[str, bytes]) -> tuple[dict[str, Record], list[Finding]]:
    """The records, and those that cannot be read."""
    records: dict[str, Record] = {}
    findings: list[Finding] = []
    for job, each in packed.items():
        try:
            records[job] = read_whole(each)
        except DAMAGED as error:
            findings.append(Finding(f"a record that cannot be read: {error}", job))
    return records, findings


def _each(what: str, jobs: Iterable[str]) -> list[Finding]:
    return [Finding(what, job) for job in sorted(jobs)]


def _differences(
    index: str,
    found: Set[tuple[str, int]],
    wanted: Set[tuple[str, int]],
    job_of: Callable[[str], str] = str,
) -> list[Finding]:
    return [
        *_each(f"an entry among the {index} that no record backs", (job_of(e) for e, _ in found - wanted)),
        *_each(f"a record that is missing among the {index}", (job_of(e) for e, _ in wanted - found)),
    ]
