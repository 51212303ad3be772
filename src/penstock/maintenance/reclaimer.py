"""Recovers jobs whose lease ran out: the core decides, the store applies it under its guard."""

import logging
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.core import decide
from penstock.core.job import ExpiredLease, QueueRef
from penstock.core.moves import Expire
from penstock.core.outcomes import Applied
from penstock.stores.bounds import RECOVER_LIMIT
from penstock.stores.protocol import HasMoves, HasReads

_LOGGER: Final = logging.getLogger("penstock.maintenance")


def holds_none(token: str) -> bool:
    """What a process without workers answers when it is asked for a lease."""
    return False


class _Parts(HasMoves, HasReads, Protocol):
    """What a reclaimer needs of a store."""


class Reclaimer:
    """Ends leases that ran out. Harmless when many processes do it: each expiry is applied once.

    `is_held` is true for the token of a lease that a worker of this process holds, and renewed in time by a
    clock that never steps. If such a lease ran out by the store's clock, that clock was set, and the job may
    still be settled: its lease is left alone.
    """

    def __init__(
        self,
        store: _Parts,
        queue: QueueRef,
        limit: int = RECOVER_LIMIT,
        is_held: Callable[[str], bool] = holds_none,
    ) -> None:
        self._store = store
        self._queue = queue
        self._limit = limit
        self._is_held = is_held

    async def tick(self) -> bool:
        """Recover one batch; True when there may be more."""
        leases = await self._store.reads.expired(self._queue, self._limit)
        recovered = await self.recover(leases)
        # Without progress an immediate repeat would only find the same leases.
        return len(leases) >= self._limit and recovered > 0

    async def recover(self, leases: Sequence[ExpiredLease]) -> int:
        """Apply what follows for these leases; how many were recovered by this call."""
        decided = [(lease, expiry) for lease in leases if (expiry := self._decided(lease)) is not None]
        if not decided:
            return 0
        answers = await self._store.moves.expire(self._queue, [expiry for _, expiry in decided])
        recovered = 0
        for (lease, _), answer in zip(decided, answers, strict=True):
            if isinstance(answer, Applied):
                recovered += 1
                _LOGGER.warning(
                    "lease of worker %s ran out, job is %s",
                    lease.worker,
                    answer.state,
                    extra={
                        "tenant": self._queue.tenant,
                        "queue": self._queue.name,
                        "job": lease.id,
                        "attempt": lease.attempts + 1,
                        "worker": lease.worker,
                        "reason": decide.LEASE_EXPIRED,
                    },
                )
        return recovered

    def _decided(self, lease: ExpiredLease) -> Expire | None:
        """What follows; None for a lease that this process holds, or whose record cannot be used."""
        if self._is_held(lease.token):
            return None
        try:
            return decide.expire(lease, random.uniform)
        except Exception:
            # One record that cannot be used must not keep the leases of others from coming back.
            about = {"tenant": self._queue.tenant, "queue": self._queue.name, "job": lease.id}
            _LOGGER.exception("cannot decide what follows for a lease that ran out", extra=about)
            return None
