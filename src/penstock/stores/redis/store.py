"""The store: each move is one call of its script, however many jobs it is about."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final

from penstock.bloom.rotating import RotatingBloom
from penstock.core.decide import CANCELLED
from penstock.core.effects import PROGRESS_EVERY_MS
from penstock.core.events import DELETED, Event
from penstock.core.job import ExpiredLease, Job, NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import SETTLED_LIMIT, Applied, Claims, Enqueued, Refused
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import (
    DAMAGED_EVENT_LIMIT,
    MAX_LEASE_MS,
    PROMOTE_LIMIT,
    PRUNE_LIMIT,
    RECOVER_LIMIT,
)
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.projection import ProjectedTime
from penstock.stores.protocol import Bell, QueueBell
from penstock.stores.redis import flows, opening, records
from penstock.stores.redis.claimable import RedisClaimable
from penstock.stores.redis.clock import ServerClock
from penstock.stores.redis.due import RedisDue
from penstock.stores.redis.flows import RedisFlows
from penstock.stores.redis.ghosts import GhostScan
from penstock.stores.redis.health import Inspector
from penstock.stores.redis.inbox import Inbox
from penstock.stores.redis.kept import RedisKept
from penstock.stores.redis.keys import HIGHEST_TIER, LOWEST_TIER
from penstock.stores.redis.limits import RedisLimits
from penstock.stores.redis.log import StreamLog, StreamReaders
from penstock.stores.redis.quarantine import RedisQuarantine
from penstock.stores.redis.queues import Queues
from penstock.stores.redis.reads import Reader
from penstock.stores.redis.records import Outcome, pack
from penstock.stores.redis.scans import Scanner
from penstock.stores.redis.schedules import RedisSchedules
from penstock.stores.redis.scripts import Scripts
from penstock.stores.redis.server import Server
from penstock.stores.redis.wakeups import Subscriber
from penstock.stores.values import (
    DamagedEvent,
    EventColumns,
    Finding,
    HeldLease,
    KeyHolder,
    Page,
    Pause,
    Query,
    QueueContents,
    QueueInfo,
    Spawn,
    StoreInfo,
    Topic,
)
from penstock.stores.worker_entries import WorkerEntries

CLAIM_LIMIT: Final = 4_000
"""Jobs that one claim takes at most, whatever it asks for."""

_FIRST_VALUE: Final = 3
"""The number of the argument of progress.lua from which on values stand."""


class RedisStore(
    RedisLimits,
    RedisFlows,
    RedisSchedules,
    RedisKept,
    RedisDue,
    RedisQuarantine,
    RedisClaimable,
    StreamReaders,
    WorkerEntries,
):
    """A store on a Redis or Valkey server. `sources` replaces scripts by path; for tests of the tests."""

    keeps_call_order: ClassVar[bool] = True
    numbers_in_order: ClassVar[bool] = True
    is_server: ClassVar[bool] = True

    def __init__(
        self, url: str, *, sources: Mapping[str, str] | None = None, ghosts: RotatingBloom | None = None
    ) -> None:
        self._url = url
        self._ghost_filter = ghosts
        self._sources = sources
        self._server = Server(url, Scripts(sources))
        self._clock = ServerClock(self._server)
        self._queues = Queues(self._server, self._clock)
        self._reader = Reader(self._server)
        self._log = StreamLog(self._server)
        self._inbox = Inbox()
        self._projected = ProjectedTime()
        self._subscriber = Subscriber(self._server, self._inbox)
        self.scanner = Scanner(self._server)
        self._ghosts = None if ghosts is None else GhostScan(self._server, ghosts)

    async def open(self) -> None:
        """Connect, and refuse a server that could not keep what it accepts."""
        self._server.connect()
        try:
            await opening.check_server(self._server)
        except BaseException:
            await self._server.close()
            raise
        self._server.proven()

    async def close(self) -> None:
        """Close every connection."""
        await self._subscriber.close()
        await self._server.close()

    def twin(self) -> "RedisStore":
        """Another client of the same server."""
        twin = RedisStore(self._url, sources=self._sources, ghosts=self._ghost_filter)
        # What one of them was told holds for the process.
        twin._projected = self._projected
        return twin

    # Moves

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        if not jobs:
            return []
        answers = await self._queues.run(
            queue,
            Move.ENQUEUE,
            pack(records.short_arguments(jobs)),
            pack([each.queue for each in spawns]),
            mode or "",
            *(new.payload for new in jobs),
            *(flows.packed_job(each.job) for each in spawns),
        )
        return records.enqueued(jobs, answers)

    @answers_absent
    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        return int(await self._queues.run_if_there(queue, Move.PROMOTE, limit)) if limit > 0 else 0

    @answers_absent
    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        stand_ms: int = 0,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        claimant = queue, worker
        came = self._inbox.take(claimant) if limit else None
        if came is not None:
            self._projected.told(max(job.fence for job in came.jobs))
            return came
        self._inbox.leave(claimant)
        # The work of one script is bounded, and so is what Lua can hand to a command.
        limit, floor_us = min(limit, CLAIM_LIMIT), self._projected.floor_us(floor_us)
        number = self._inbox.stand(claimant) if stand_ms and limit else b""
        claims = None
        try:
            answer = await self._queues.run_if_there(
                queue,
                Move.CLAIM,
                worker,
                limit,
                lease_ms,
                secrets.token_hex(16 * limit),
                limits.promote_limit,
                limits.recover_limit,
                limits.claim_scan
                if self._ghosts is None
                else self._ghosts.pass_limit(queue, limits.claim_scan),
                MAX_LEASE_MS,
                HIGHEST_TIER,
                LOWEST_TIER,
                floor_us,
                self._inbox.received(claimant),
                stand_ms if number else 0,
                number,
                self._inbox.channel,
                # For a claim that stands the queue has to be there.
                opens_new=bool(number),
            )
            claims, damages = records.claims(answer)
            if damages:
                await self._set_aside(queue, damages)
        finally:
            if claims is None or claims.stands is None:
                self._inbox.leave(claimant)
        self._inbox.told(claimant)
        self._projected.told(claims.now_us, floor_us)
        if self._ghosts is not None and claims.is_more:
            await self._ghosts.look(queue, claims.jobs)
        return claims

    @answers_absent
    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        items = [(beat.id, beat.token) for beat in beats]
        return await self._answered(queue, Move.HEARTBEAT, items, lease_ms, MAX_LEASE_MS)

    @answers_absent
    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        items = [(report.id, report.token, at) for at, report in enumerate(reports, start=_FIRST_VALUE)]
        values = (report.value for report in reports)
        return await self._answered(queue, Move.PROGRESS, items, PROGRESS_EVERY_MS, *values)

    @answers_absent
    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        if not settlements:
            return []
        packed, results = records.settle_arguments(settlements)
        answers = await self._queues.run_if_there(
            queue, "calls/settle", packed, SETTLED_LIMIT, CANCELLED, *results
        )
        return [records.outcome(answer) for answer in answers]

    @answers_absent
    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        items = [records.expire_arguments(expiry) for expiry in expiries]
        return await self._answered(queue, Move.EXPIRE, items, MAX_LEASE_MS, CANCELLED)

    @answers_absent
    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        answers = await self._answered(queue, Move.CANCEL, _alone(ids), CANCELLED)
        if self._ghosts is not None:
            self._ghosts.left(queue, ids, answers)
        return answers

    @answers_absent
    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        return await self._answered(queue, Move.REDRIVE, _alone(ids))

    @answers_absent
    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        answers = await self._answered(queue, Move.DELETE, _alone(ids), DELETED)
        if self._ghosts is not None:
            self._ghosts.left(queue, ids, answers)
        return answers

    @answers_absent
    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        return int(await self._queues.run_if_there(queue, Move.PRUNE, limit)) if limit > 0 else 0

    async def _answered(
        self, queue: QueueRef, move: Move, items: Sequence[Any], *arguments: Any
    ) -> list[Outcome]:
        if not items:
            return []
        answers = await self._queues.run_if_there(queue, move, pack(items), *arguments)
        return [records.outcome(answer) for answer in answers]

    # Reads

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        return await self._reader.get(queue, ids)

    async def find(self, queue: QueueRef, query: Query) -> Page:
        return await self._reader.find(queue, query)

    @answers_absent
    async def key_holders(self, queue: QueueRef, keys: Sequence[str]) -> list[KeyHolder | None]:
        if not keys:
            return []
        answers = await self._queues.run_if_there(queue, "reads/holders", pack(list(keys)))
        return [records.key_holder(answer) for answer in answers]

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        return await self._reader.counts(queue)

    async def ahead(self, queue: QueueRef, job: str) -> int:
        return await self._reader.ahead(queue, job)

    async def oldest(self, queue: QueueRef) -> int | None:
        return await self._reader.oldest(queue)

    @answers_absent
    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        leases, has_keys = await self._queues.run_if_there(queue, "reads/expired", limit, MAX_LEASE_MS)
        found, damages = records.expired_leases(leases, has_keys)
        if damages:
            await self._set_aside(queue, damages)
        return found

    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        return await self._reader.leases(queue, worker)

    # Queues

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        return await self._queues.open(queue)

    async def queue(self, queue: QueueRef) -> QueueInfo | None:
        return await self._queues.find(queue)

    async def queues(self, tenant: str) -> list[QueueInfo]:
        return await self._queues.of(tenant)

    async def tenants(self) -> list[str]:
        return await self._queues.tenants()

    async def delete_queue(self, queue: QueueRef) -> QueueContents | None:
        return await self._queues.delete(queue)

    async def pause(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        await self._queues.pause(queue, pause, for_ms)

    # Events

    async def events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        return await self._log.events(queue, after, limit)

    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        return await self._log.damaged_events(queue, after, limit)

    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        return await self._log.event_columns(queue, after, through, limit)

    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        return await self._log.cursor_after(queue, after, limit)

    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        return await self._log.cursor_at(queue, at)

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        return await self._log.event_range(queue)

    async def trim(self, queue: QueueRef, *, through: int) -> int:
        return await self._log.trim(queue, through)

    # Wake-ups, clock, health

    def bell(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Bell]:
        return self._subscriber.hang(queue, topic)

    def queue_bell(self, tenant: str) -> AbstractAsyncContextManager[QueueBell]:
        return self._subscriber.hang_for_all(tenant)

    async def now(self) -> int:
        return await self._clock.now()

    async def turn(self, by_ms: int) -> None:
        await self._clock.turn(by_ms)
        self._subscriber.ring_all()

    async def info(self) -> StoreInfo:
        return StoreInfo(
            "redis",
            self._server.url,
            await opening.durability(self._server),
            await opening.server_version(self._server),
            opening.SCHEMA_VERSION,
            await self._clock.known_offset_ms(),
            await opening.replication(self._server),
        )

    async def check(self, queue: QueueRef) -> list[Finding]:
        return await Inspector(self._server).check(queue)


def _alone(ids: Sequence[str]) -> list[tuple[str]]:
    return [(each,) for each in ids]
