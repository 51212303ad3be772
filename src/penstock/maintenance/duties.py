"""The duties of one queue that no worker has for a job of its own, each in bounded batches."""

import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, Protocol

from penstock.core.job import QueueRef
from penstock.maintenance.attempts import Attempts
from penstock.maintenance.promoter import Promoter
from penstock.maintenance.pruner import EVENTS_AGE, EVENTS_KEPT, Pruner, Trimmer
from penstock.maintenance.reclaimer import Reclaimer, holds_none
from penstock.maintenance.relayer import Relayer
from penstock.maintenance.roller import Roller
from penstock.schedules.ticker import Admission, Ticker
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.protocol import Store
from penstock.stores.values import Duty

_LOGGER: Final = logging.getLogger("penstock.maintenance")
ROUNDS: Final = 20
"""Batches of a duty in a row; what is left then is done a moment later."""
EVERY_DUTY: Final = tuple(Duty)
_TOLD: Final = {
    Duty.PROMOTE: "promoting",
    Duty.RECOVER: "recovering",
    Duty.FIRE: "firing schedules",
    Duty.RELAY: "relaying",
    Duty.PRUNE: "pruning",
    Duty.FOLD: "folding events",
    Duty.TRIM: "trimming",
}


class Result(Enum):
    """How a duty went."""

    DONE = auto()
    MORE = auto()
    """There may be more to do at once."""
    STUCK = auto()
    """Something is due and cannot be done yet."""
    FAILED = auto()


class Batches(Protocol):
    """Something that is done in bounded batches."""

    async def tick(self) -> bool:
        """Do one batch; True when there may be more."""
        ...


class QueueDuties:
    """Does the duties of one queue. A duty that fails is logged once and keeps no other from its work."""

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        *,
        events_kept: int = EVENTS_KEPT,
        events_age: float = EVENTS_AGE,
        admission: Admission | None = None,
        limits: ClaimLimits = CLAIM_LIMITS,
        is_held: Callable[[str], bool] = holds_none,
    ) -> None:
        self._ticker = Ticker(store, queue, admission)
        self._batches: Mapping[Duty, Batches] = {
            Duty.PROMOTE: Promoter(store, queue, limits.promote_limit),
            Duty.RECOVER: Reclaimer(store, queue, limits.recover_limit, is_held),
            Duty.FIRE: self._ticker,
            Duty.RELAY: Relayer(store, queue),
            Duty.PRUNE: Pruner(store, queue),
            Duty.FOLD: Roller(store, queue),
            Duty.TRIM: Trimmer(store, queue, kept=events_kept, age=events_age),
        }
        self._attempts = Attempts(_LOGGER)
        self._about: Mapping[str, object] = {"tenant": queue.tenant, "queue": queue.name}

    async def do(self, duty: Duty) -> Result:
        """Do a duty in batches, up to a bound."""
        for _ in range(ROUNDS):
            more = await self._attempts.attempt(_TOLD[duty], self._batches[duty].tick, self._about)
            if more is None:
                return Result.FAILED
            if not more:
                is_stuck = duty is Duty.FIRE and self._ticker.is_stuck
                return Result.STUCK if is_stuck else Result.DONE
        return Result.MORE

    async def do_all(self) -> bool:
        """Do every duty; True when one of them has more to do."""
        return Result.MORE in [await self.do(duty) for duty in EVERY_DUTY]
