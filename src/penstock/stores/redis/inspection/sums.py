"""The first look at a whole queue: sums over all records and indexes, which tell where they disagree."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.core.states import State
from penstock.stores.corruption import DECODE_ERRORS
from penstock.stores.redis.codec.jobs import Record, read_whole
from penstock.stores.redis.codec.lanes import Lane
from penstock.stores.redis.inspection.key_pages import PageReader
from penstock.stores.redis.inspection.running_sums import RunningSums
from penstock.stores.redis.keys import TIERS, QueueKeys, lane_line
from penstock.stores.redis.server import Server

PRUNABLE: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
SIDE_HASHES: Final = ("results", "errors", "progress")
"""What a job may have beside its record and its payload."""
ENDED: Final = tuple(state for state in State if state.is_ended)


class KeyCounts(msgspec.Struct):
    """How many jobs of each key wait and run, by the records; empty where keys take no turns."""

    waiting: Counter[str] = msgspec.field(default_factory=Counter)
    running: Counter[str] = msgspec.field(default_factory=Counter)

    def count(self, record: Record) -> None:
        """Count one record."""
        if record.state is State.PENDING:
            self.waiting[str(record.key)] += 1
        elif record.state is State.ACTIVE:
            self.running[str(record.key)] += 1


def lines_of(lanes: Mapping[str, Lane]) -> list[int | str]:
    """The lists of pending jobs: one per tier, and one per key that has a lane."""
    return [*TIERS, *(lane_line(lane.number) for lane in lanes.values())]


def line_of(record: Record, lanes: Mapping[str, Lane]) -> int | str | None:
    """The list that the record belongs to while it is pending."""
    if not lanes:
        return record.priority
    lane = lanes.get(str(record.key))
    return None if lane is None else lane_line(lane.number)


class SumTaker:
    """Adds up what the records of a queue want in its indexes, and takes off what the indexes have."""

    def __init__(self, server: Server, pages: PageReader) -> None:
        self._server = server
        self._pages = pages

    async def take(self, keys: QueueKeys, lanes: Mapping[str, Lane], running: RunningSums) -> KeyCounts:
        """Fill the running; the result is what the records say of the queue's keys."""
        counts = KeyCounts()
        async for page in self._pages.hash(keys.records):
            for job, packed in page.items():
                try:
                    record = read_whole(packed)
                except DECODE_ERRORS:
                    running.mark(job)
                    continue
                _want(running, job, record, lanes)
                if lanes:
                    counts.count(record)
        async for fields in self._pages.fields(keys.payloads):
            for job in fields:
                running.find(job, ("payloads", job))
        for name in SIDE_HASHES:
            await self._side(keys, getattr(keys, name), running)
        await self._pending(keys, lanes, running)
        await self._sorted(keys, running)
        return counts

    async def _side(self, keys: QueueKeys, key: str, running: RunningSums) -> None:
        """A record need not have it, but it has to have a record."""
        async for jobs in self._pages.fields(key):
            if jobs:
                records = await self._server.command("HMGET", keys.records, *jobs)
                for job, record in zip(jobs, records, strict=True):
                    if record is None:
                        running.mark(job)

    async def _pending(self, keys: QueueKeys, lanes: Mapping[str, Lane], running: RunningSums) -> None:
        lines = lines_of(lanes)
        async for at, entries in self._pages.lists([keys.pending(line) for line in lines]):
            line = lines[at]
            for entry in entries:
                running.find(entry.partition(b" ")[2], (line, entry))
        # A note takes its entry off the list: together they are nothing.
        async for at, notes in self._pages.sets([keys.gone(line) for line in lines]):
            line = lines[at]
            for entry in notes:
                running.want(entry.partition(b" ")[2], (line, entry))

    async def _sorted(self, keys: QueueKeys, running: RunningSums) -> None:
        for index in ("jobs", "blocked"):
            async for page in self._pages.scores(getattr(keys, index)):
                for job, _ in page:
                    running.find(job, (index, job))
        async for page in self._pages.scores(keys.delayed):
            for member, score in page:
                running.find(member.partition(b" ")[2], ("delayed", member, score))
        indexes = [("active", keys.active), ("prunable", keys.prunable)]
        indexes += [(str(state), keys.ended(state)) for state in ENDED]
        for index, key in indexes:
            async for page in self._pages.scores(key):
                for job, score in page:
                    running.find(job, (index, job, score))


def _want(running: RunningSums, job: bytes, record: Record, lanes: Mapping[str, Lane]) -> None:
    """What the indexes should have of a record."""
    listed, kept = ("jobs", job), ("payloads", job)
    match record.state:
        case State.PENDING:
            running.want(job, listed, kept, (line_of(record, lanes), b"%d %s" % (record.place, job)))
        case State.BLOCKED:
            running.want(job, listed, kept, ("blocked", job))
        case State.DELAYED:
            member = b"%016d %s" % (record.place, job)
            running.want(job, listed, kept, ("delayed", member, int(record.visible_at)))
        case State.ACTIVE:
            running.want(job, listed, kept, ("active", job, int(record.deadline)))
            if record.token is False or record.deadline is False:
                running.mark(job)
        case state:
            ended_at = int(record.ended_at)
            running.want(job, listed, kept, (str(state), job, ended_at))
            if state in PRUNABLE:
                running.want(job, ("prunable", job, ended_at + record.retention_ms))
