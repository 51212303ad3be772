"""Leasing jobs to workers."""

import secrets
from typing import Final

from penstock.core.clocks import FLOOR_US
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import MAX_LEASE_MS
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.projection import ProjectedTime
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec import replies
from penstock.stores.redis.ghosts import GhostScan
from penstock.stores.redis.keys import HIGHEST_TIER, LOWEST_TIER
from penstock.stores.redis.quarantine import RedisQuarantine

CLAIM_LIMIT: Final = 4_000
"""Jobs that one claim takes at most, whatever limit it names."""


class RedisClaims:
    """The move `claim`: one call of its script."""

    def __init__(
        self,
        backend: Backend,
        quarantine: RedisQuarantine,
        projected_time: ProjectedTime,
        ghosts: GhostScan | None,
    ) -> None:
        self._run_if_there = backend.run_if_there
        self._quarantine = quarantine
        self._projected_time = projected_time
        self._ghosts = ghosts

    @answers_absent
    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        # The work of one script is bounded, and so is the number of values that Lua hands to a command.
        limit, floor_us = min(limit, CLAIM_LIMIT), self._projected_time.floor_us(floor_us)
        scan = limits.claim_scan
        if self._ghosts is not None:
            # Before the claim: what follows it could fail, and the jobs would be lost to their worker.
            scan = await self._ghosts.pass_limit(queue, scan)
        answer = await self._run_if_there(
            queue,
            Move.CLAIM,
            worker,
            limit,
            lease_ms,
            secrets.token_hex(16 * limit),
            limits.promote_limit,
            limits.recover_limit,
            scan,
            MAX_LEASE_MS,
            HIGHEST_TIER,
            LOWEST_TIER,
            floor_us,
            FLOOR_US,
        )
        claims, damages = replies.claims(answer)
        if damages:
            await self._quarantine.set_aside(queue, damages)
        self._projected_time.observe(claims.now_us, floor_us)
        if self._ghosts is not None:
            self._ghosts.on_claims(queue, claims)
        return claims
