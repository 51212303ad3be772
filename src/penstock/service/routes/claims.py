"""Claims: lease jobs, renew leases, report progress and settle, in batches."""

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
from penstock.maintenance.reclaimer import Reclaimer
from penstock.service import portions
from penstock.service.known_queues import lost
from penstock.service.principal import Verb
from penstock.service.request import Request, unbroken
from penstock.service.routing import Routes
from penstock.service.settlements import settlements
from penstock.service.wire.claims import (
    ClaimedJobView,
    ClaimRequest,
    ClaimResult,
    HeartbeatRequest,
    JobOutcomeList,
    ProgressRequest,
    SettleRequest,
    claimed_view,
    outcome,
)
from penstock.service.wire.jobs import checked_json
from penstock.stores.protocol import Subscription
from penstock.stores.values import Topic

routes: Final = Routes()
_LOGGER: Final = logging.getLogger("penstock.service")
POLL: Final = 5.0
"""Seconds between two claims of a long poll without a notification."""
MANY_POLL: Final = 0.5
"""The same for an operator of many tenants, which does not subscribe to the queues of all of them."""
SHORTEST: Final = 0.02
Found = list[tuple[str, Claims]]


@routes.post("/v1/queues/{queue}/claims", Verb.WORK)
async def claim(request: Request, queue: str, body: ClaimRequest) -> ClaimResult:
    """Claim jobs; with `wait` as a long poll. An operator gets jobs of all its tenants, in fair turns."""
    found = await _claim(request, queue, body)
    if not _jobs(found) and body.wait:
        async with request.held():
            found = await _wait(request, queue, body, found)
            if request.over.is_set() and not request.service.is_stopping and not request.has_given_way:
                await _give_back(request, queue, found)
    is_many = bool(request.principal.tenants)
    due = [claims.wait_ms for _, claims in found if claims.wait_ms is not None]
    jobs: list[ClaimedJobView] = []
    for tenant, claims in found:
        for job in claims.jobs:
            jobs.append(claimed_view(job, tenant if is_many else None))
            await request.yielder.checkpoint()
    now_us = max((claims.now_us for _, claims in found), default=0)
    return ClaimResult(jobs, min(due) / 1000 if due else None, now_us)


@routes.post("/v1/queues/{queue}/claims/heartbeat", Verb.WORK)
async def heartbeat(request: Request, queue: str, body: HeartbeatRequest) -> JobOutcomeList:
    """Renew leases.

    A lost lease means that another worker has the job; `cancel_requested` asks the worker to stop.
    """
    beats = [Beat(each.id, each.token) for each in body.beats]
    ref = request.ref(queue)
    answers = (
        await request.store.moves.heartbeat(ref, beats, round(body.lease * 1000))
        if await request.service.known.has(ref)
        else lost(beats)
    )
    return JobOutcomeList([outcome(each.id, answer) for each, answer in zip(beats, answers, strict=True)])


@routes.post("/v1/queues/{queue}/claims/progress", Verb.WORK)
async def progress(request: Request, queue: str, body: ProgressRequest) -> JobOutcomeList:
    """Store the newest progress of running jobs."""
    reports: list[Report] = []
    for place, each in enumerate(body.reports):
        checked_json(f"reports[{place}].value", bytes(each.value), PROGRESS_LIMIT)
        reports.append(Report(each.id, each.token, bytes(each.value)))
        await request.yielder.checkpoint()
    ref = request.ref(queue)
    answers = (
        await request.store.moves.progress(ref, reports)
        if await request.service.known.has(ref)
        else lost(reports)
    )
    return JobOutcomeList([outcome(each.id, answer) for each, answer in zip(reports, answers, strict=True)])


@routes.post("/v1/queues/{queue}/claims/settle", Verb.WORK)
async def settle(request: Request, queue: str, body: SettleRequest) -> JobOutcomeList:
    """Settle deliveries: complete, fail, retry, snooze or release.

    A repeated request returns the same outcomes.
    """
    ref = request.ref(queue)
    if not await request.service.known.has(ref):
        reports = body.settlements
        return JobOutcomeList([outcome(each.id, no) for each, no in zip(reports, lost(reports), strict=True)])
    moves = await settlements(request.store.reads, ref, body.settlements, request.yielder)
    answers = await unbroken(request.store.moves.settle(ref, moves))
    await _carry(request, ref)
    return JobOutcomeList([outcome(each.id, answer) for each, answer in zip(moves, answers, strict=True)])


async def _claim(request: Request, queue: str, body: ClaimRequest) -> Found:
    """Claim once, and expire the leases that ran out."""

    async def of(tenant: str, limit: int) -> Claims:
        ref = QueueRef(tenant, queue)
        if not await request.service.known.has(ref):
            return Claims()
        claims = await portions.claim(
            request.store.moves,
            ref,
            worker=body.worker,
            limit=limit,
            lease_ms=round(body.lease * 1000),
            floor_us=body.fence_floor,
            most_bytes=request.service.limits.answer_bytes,
        )
        if claims.expired:
            await _recover(request, ref, claims.expired)
        return claims

    if not request.principal.tenants:
        return [(request.tenant, await unbroken(of(request.ref(queue).tenant, body.limit)))]
    tenants = await request.service.tenants_of(request.principal)
    return await unbroken(request.service.fair_claims(queue, tenants).claim(tenants, body.limit, of))


async def _recover(request: Request, ref: QueueRef, expired: Sequence[ExpiredLease]) -> None:
    """Expire leases that ran out.

    A failure is left to the next claim: the jobs that were leased must reach their worker.
    """
    try:
        await Reclaimer(request.store, ref).recover(expired)
    except Exception:
        about = {"tenant": ref.tenant, "queue": ref.name, "request": request.request_id}
        _LOGGER.warning("recovering leases that ran out failed", exc_info=True, extra=about)


async def _wait(request: Request, queue: str, body: ClaimRequest, found: Found) -> Found:
    clock = asyncio.get_running_loop().time
    end = clock() + body.wait
    async with AsyncExitStack() as stack:
        subscription: Subscription | None = None
        if not request.principal.tenants:
            subscription = await stack.enter_async_context(
                request.store.notifier.subscribe(request.ref(queue), Topic.READY)
            )
            # Something may have come before the subscription was there.
            async with request.turn():
                found = await _claim(request, queue, body)
        while not _jobs(found) and not request.over.is_set() and (left := end - clock()) > 0:
            due = [claims.wait_ms / 1000 for _, claims in found if claims.wait_ms is not None]
            if any(claims.is_more for _, claims in found):
                due.append(SHORTEST)
            rest = max(SHORTEST, min(left, *due, POLL if subscription else MANY_POLL))
            await request.until_over(
                asyncio.sleep(rest, False) if subscription is None else subscription.wait(rest)
            )
            async with request.turn():
                if not request.over.is_set():
                    found = await _claim(request, queue, body)
    return found


async def _give_back(request: Request, queue: str, found: Found) -> None:
    """Release jobs whose client went away: other workers need not wait for the lease to end."""
    for tenant, claims in found:
        if claims.jobs:
            releases = [Release(job.id, job.token) for job in claims.jobs]
            await request.store.moves.settle(QueueRef(tenant, queue), releases)


async def _carry(request: Request, ref: QueueRef) -> None:
    """Carry relay entries to the parents of ended jobs. The next upkeep carries the entries that fail now."""
    try:
        await relay(request.store, ref)
    except StoreError:
        return


def _jobs(found: Sequence[tuple[str, Claims]]) -> list[Any]:
    return [job for _, claims in found for job in claims.jobs]
