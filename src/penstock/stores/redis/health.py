"""The store's fsck: records and indexes have to tell the same story."""

from collections import Counter
from collections.abc import Callable, Iterable, Set
from typing import Final

import msgspec

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.protocol import Finding
from penstock.stores.redis.keys import TIERS, QueueKeys, keys_of
from penstock.stores.redis.reads import CHUNK, scored
from penstock.stores.redis.server import Server

_FACTS: Final = ("state", "place", "priority", "token", "deadline", "visible_at", "ended_at", "retention_ms")
_PRUNABLE: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class _Record(msgspec.Struct, frozen=True):
    state: State
    place: int | None
    priority: int
    token: str | None
    deadline: int | None
    visible_at: int | None
    ended_at: int | None
    retention_ms: int


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
        records = await self._records(keys)
        return [
            *await self._jobs(keys, records),
            *await self._pending(keys, records),
            *await self._delayed(keys, records),
            *await self._active(keys, records),
            *await self._ended(keys, records),
            *await self._events(keys),
        ]

    async def _records(self, keys: QueueKeys) -> dict[str, _Record]:
        ids: set[str] = set()
        cursor = 0
        while True:
            cursor, found = await self._server.command(
                "SCAN", cursor, "MATCH", keys.job_pattern(), "COUNT", CHUNK
            )
            ids.update(keys.job_of(key) for key in found)
            if int(cursor) == 0:
                break
        records: dict[str, _Record] = {}
        ordered = sorted(ids)
        for start in range(0, len(ordered), CHUNK):
            chunk = ordered[start : start + CHUNK]
            answers = await self._server.commands([("HMGET", keys.job(job), *_FACTS) for job in chunk])
            for job, facts in zip(chunk, answers, strict=True):
                if facts[0] is not None:
                    texts = [None if fact is None else fact.decode() for fact in facts]
                    records[job] = msgspec.convert(
                        dict(zip(_FACTS, texts, strict=True)), _Record, strict=False
                    )
        return records

    async def _jobs(self, keys: QueueKeys, records: dict[str, _Record]) -> list[Finding]:
        listed = {job.decode() for job in await self._server.command("ZRANGE", keys.jobs, 0, -1)}
        return [
            *_each("a record that is not in the list of jobs", records.keys() - listed),
            *_each("an entry in the list of jobs without a record", listed - records.keys()),
        ]

    async def _pending(self, keys: QueueKeys, records: dict[str, _Record]) -> list[Finding]:
        out: list[Finding] = []
        lists = await self._server.commands([("LRANGE", keys.pending(tier), 0, -1) for tier in TIERS])
        notes = await self._server.commands([("ZRANGE", keys.gone(tier), 0, -1) for tier in TIERS])
        claimable: Counter[str] = Counter()
        for tier, entries, gone in zip(TIERS, lists, notes, strict=True):
            left = set(gone)
            for entry in entries:
                place, _, job = entry.decode().partition(" ")
                record = records.get(job)
                stands = (
                    record is not None
                    and record.state is State.PENDING
                    and (record.place, record.priority) == (int(place), tier)
                )
                claimable[job] += stands
                if stands == (entry in left):
                    what = "a pending job noted as gone" if stands else "a pending entry without its job"
                    out.append(Finding(what, job))
            out += _each("a note of an entry that is not there", (e.decode() for e in left - set(entries)))
        for job, record in records.items():
            if record.state is State.PENDING and claimable[job] != 1:
                out.append(Finding(f"a pending job that stands {claimable[job]} times in its tier", job))
        return out

    async def _delayed(self, keys: QueueKeys, records: dict[str, _Record]) -> list[Finding]:
        rows = scored(await self._server.command("ZRANGE", keys.delayed, 0, -1, "WITHSCORES"))
        found = [(member.decode(), int(score)) for member, score in rows]
        wanted = [
            (f"{record.place or 0:016d} {job}", record.visible_at)
            for job, record in records.items()
            if record.state is State.DELAYED
        ]
        return _differences("delayed", set(found), set(wanted), lambda entry: entry.partition(" ")[2])

    async def _active(self, keys: QueueKeys, records: dict[str, _Record]) -> list[Finding]:
        rows = scored(await self._server.command("ZRANGE", keys.active, 0, -1, "WITHSCORES"))
        found = {(member.decode(), int(score)) for member, score in rows}
        active = {job: record for job, record in records.items() if record.state is State.ACTIVE}
        bare = [job for job, record in active.items() if record.token is None or record.deadline is None]
        wanted = {(job, record.deadline) for job, record in active.items()}
        return [*_each("an active job without a lease", bare), *_differences("active", found, wanted)]

    async def _ended(self, keys: QueueKeys, records: dict[str, _Record]) -> list[Finding]:
        out: list[Finding] = []
        for state in (state for state in State if state.is_ended):
            rows = scored(await self._server.command("ZRANGE", keys.ended(state), 0, -1, "WITHSCORES"))
            found = {(member.decode(), int(score)) for member, score in rows}
            wanted = {(job, record.ended_at) for job, record in records.items() if record.state is state}
            out += _differences(state, found, wanted)
        rows = scored(await self._server.command("ZRANGE", keys.prunable, 0, -1, "WITHSCORES"))
        found = {(member.decode(), int(score)) for member, score in rows}
        kept = {
            (job, (record.ended_at or 0) + record.retention_ms)
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


def _each(what: str, jobs: Iterable[str]) -> list[Finding]:
    return [Finding(what, job) for job in sorted(jobs)]


def _differences(
    index: str,
    found: Set[tuple[str, int]],
    wanted: Set[tuple[str, int | None]],
    job_of: Callable[[str], str] = str,
) -> list[Finding]:
    return [
        *_each(f"an entry among the {index} that no record backs", (job_of(e) for e, _ in found - wanted)),
        *_each(f"a record that is missing among the {index}", (job_of(e) for e, _ in wanted - found)),
    ]
