"""Claims: take jobs under a lease, renew it, tell of progress, settle. All in batches."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from penstock.client.relay import relay
from penstock.core.errors import StoreError
from penstock.core.job import ExpiredLease, QueueRef
from penstock.core.moves import Beat, Release, Report
from penstock.core.outcomes import Claims
from penstock.core.payload import PROGRESS_LIMIT
from penstock.scheduler.reclaimer import Reclaimer
from penstock.service import portions
from penstock.service.absent import lost
from penstock.service.ask import Ask, unbroken
from penstock.service.principal import Verb
from penstock.service.routing import Routes
from penstock.service.settling import settlements
from penstock.service.wire.claims import (
    ClaimedView,
    ClaimsView,
    ClaimWish,
    Heartbeats,
    Outcomes,
    ProgressReports,
    Settlements,
    claimed_view,
    outcome,
)
from penstock.service.wire.jobs import checked_json
from penstock.stores.protocol import Bell
from penstock.stores.values import Topic

routes: Final = Routes()
_LOGGER: Final = logging.getLogger("penstock.service")
POLL: Final = 5.0
"""Seconds between two looks when nothing rings."""
MANY_POLL: Final = 0.5
"""The same for those who claim for many tenants, whose bells are not all listened to."""
SHORTEST: Final = 0.02
Found = list[tuple[str, Claims]]


@routes.post("/v1/queues/{queue}/claims", Verb.WORK)
async def claim(ask: Ask, queue: str, body: ClaimWish) -> ClaimsView:
    """Claim jobs; with `wait` as a long poll. An operator gets those of all its tenants, in fair turns."""
    found = await _claim(ask, queue, body)
    if not _jobs(found) and body.wait:
        async with ask.held():
            found = await _wait(ask, queue, body, found)
            if ask.over.is_set() and not ask.service.is_stopping and not ask.has_given_way:
                await _give_back(ask, queue, found)
    is_many = bool(ask.principal.tenants)
    due = [claims.wait_ms for _, claims in found if claims.wait_ms is not None]
    jobs: list[ClaimedView] = []
    for tenant, claims in found:
        for job in claims.jobs:
            jobs.append(claimed_view(job, tenant if is_many else None))
            await ask.yielder.checkpoint()
    now_us = max((claims.now_us for _, claims in found), default=0)
    return ClaimsView(jobs, min(due) / 1000 if due else None, now_us)


@routes.post("/v1/queues/{queue}/claims/heartbeat", Verb.WORK)
async def heartbeat(ask: Ask, queue: str, body: Heartbeats) -> Outcomes:
    """Renew leases. One that is lost says so: its job is another's now. `cancel_requested` asks to stop."""
    beats = [Beat(each.id, each.token) for each in body.beats]
    ref = ask.ref(queue)
    answers = (
        await ask.store.heartbeat(ref, beats, round(body.lease * 1000))
        if await ask.service.known.has(ref)
        else lost(beats)
    )
    return Outcomes([outcome(each.id, answer) for each, answer in zip(beats, answers, strict=True)])


@routes.post("/v1/queues/{queue}/claims/progress", Verb.WORK)
async def progress(ask: Ask, queue: str, body: ProgressReports) -> Outcomes:
    """Keep the newest progress of running jobs."""
    reports: list[Report] = []
    for place, each in enumerate(body.reports):
        checked_json(f"reports[{place}].value", bytes(each.value), PROGRESS_LIMIT)
        reports.append(Report(each.id, each.token, bytes(each.value)))
        await ask.yielder.checkpoint()
    ref = ask.ref(queue)
    answers = await ask.store.progress(ref, reports) if await ask.service.known.has(ref) else lost(reports)
    return Outcomes([outcome(each.id, answer) for each, answer in zip(reports, answers, strict=True)])


@routes.post("/v1/queues/{queue}/claims/settle", Verb.WORK)
async def settle(ask: Ask, queue: str, body: Settlements) -> Outcomes:
    """End deliveries: complete, fail, retry, snooze or release. The same again gets the same answer."""
    ref = ask.ref(queue)
    if not await ask.service.known.has(ref):
        wishes = body.settlements
        return Outcomes([outcome(each.id, no) for each, no in zip(wishes, lost(wishes), strict=True)])
    moves = await settlements(ask.store, ref, body.settlements, ask.yielder)
    answers = await unbroken(ask.store.settle(ref, moves))
    await _carry(ask, ref)
    return Outcomes([outcome(each.id, answer) for each, answer in zip(moves, answers, strict=True)])


async def _claim(ask: Ask, queue: str, wish: ClaimWish) -> Found:
    """One look, with the leases that ran out dealt with."""

    async def of(tenant: str, limit: int) -> Claims:
        ref = QueueRef(tenant, queue)
        if not await ask.service.known.has(ref):
            return Claims()
        claims = await portions.claim(
            ask.store,
            ref,
            worker=wish.worker,
            limit=limit,
            lease_ms=round(wish.lease * 1000),
            floor_us=wish.fence_floor,
            most_bytes=ask.service.limits.answer_bytes,
        )
        if claims.expired:
            await _recover(ask, ref, claims.expired)
        return claims

    if not ask.principal.tenants:
        return [(ask.tenant, await unbroken(of(ask.ref(queue).tenant, wish.limit)))]
    tenants = await ask.service.tenants_of(ask.principal)
    return await unbroken(ask.service.turns(queue, tenants).claim(tenants, wish.limit, of))


async def _recover(ask: Ask, ref: QueueRef, expired: Sequence[ExpiredLease]) -> None:
    """Deal with leases that ran out. If that fails the next claim does: the jobs leased here must go out."""
    try:
        await Reclaimer(ask.store, ref).recover(expired)
    except Exception:
        about = {"tenant": ref.tenant, "queue": ref.name, "request": ask.request_id}
        _LOGGER.warning("recovering leases that ran out failed", exc_info=True, extra=about)


async def _wait(ask: Ask, queue: str, wish: ClaimWish, found: Found) -> Found:
    clock = asyncio.get_running_loop().time
    end = clock() + wish.wait
    async with AsyncExitStack() as stack:
        bell: Bell | None = None
        if not ask.principal.tenants:
            bell = await stack.enter_async_context(ask.store.bell(ask.ref(queue), Topic.READY))
            # Something may have come before the bell was up.
            found = await _claim(ask, queue, wish)
        while not _jobs(found) and not ask.over.is_set() and (left := end - clock()) > 0:
            due = [claims.wait_ms / 1000 for _, claims in found if claims.wait_ms is not None]
            if any(claims.is_more for _, claims in found):
                due.append(SHORTEST)
            rest = max(SHORTEST, min(left, *due, POLL if bell else MANY_POLL))
            await ask.until_over(asyncio.sleep(rest, False) if bell is None else bell.wait(rest))
            if not ask.over.is_set():
                found = await _claim(ask, queue, wish)
    return found


async def _give_back(ask: Ask, queue: str, found: Found) -> None:
    """Nobody is there any more to take these: others need not wait until the lease is over."""
    for tenant, claims in found:
        if claims.jobs:
            releases = [Release(job.id, job.token) for job in claims.jobs]
            await ask.store.settle(QueueRef(tenant, queue), releases)


async def _carry(ask: Ask, ref: QueueRef) -> None:
    """Tell those who wait for what ended. What does not go over now is carried by the next tick."""
    try:
        await relay(ask.store, ref)
    except StoreError:
        return


def _jobs(found: Sequence[tuple[str, Claims]]) -> list[Any]:
    return [job for _, claims in found for job in claims.jobs]
