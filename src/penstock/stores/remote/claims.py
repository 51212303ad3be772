"""Claiming through the service: this process's projected time is the floor of the fences."""

from penstock.core.job import QueueRef
from penstock.core.outcomes import Claims
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.remote.backend import Backend


async def claim(
    backend: Backend,
    queue: QueueRef,
    *,
    worker: str,
    limit: int,
    lease_ms: int,
    floor_us: int,
    limits: ClaimLimits,
) -> Claims:
    """Lease jobs, and remember the time that the store answered with."""
    floor_us = backend.projected.floor_us(floor_us)
    claims: Claims = await backend.call(
        "claim", queue, worker=worker, limit=limit, lease_ms=lease_ms, floor_us=floor_us, limits=limits
    )
    if claims.now_us:
        backend.projected.observe(claims.now_us, floor_us)
    return claims
