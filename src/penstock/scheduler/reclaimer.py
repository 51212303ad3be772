"""Recovers jobs whose lease ran out: the core decides, the store applies it under its guard."""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from penstock.core import decide
from penstock.core.job import ExpiredLease, QueueRef
from penstock.core.moves import Expire
from penstock.core.outcomes import Applied
from penstock.stores.bounds import RECOVER_LIMIT
from penstock.stores.protocol import Store

_LOGGER: Final = logging.getLogger("penstock.scheduler")


_KEEPERS: Final[set[Callable[[str], bool]]] = set()


@contextmanager
def keeping(keeps: Callable[[str], bool]) -> Iterator[None]:
    """For the time of the block this process takes no lease away of whose token `keeps` is true."""
    _KEEPERS.add(keeps)
    try:
        yield
    finally:
        _KEEPERS.discard(keeps)


def is_kept(token: str) -> bool:
    """True for a lease that a worker of this process holds, and renewed in time by a clock that never steps.

    If the store says that it ran out, the store's clock was set, and the job may still be settled.
    """
    return any(keeps(token) for keeps in tuple(_KEEPERS))


class Reclaimer:
    """Takes leases away that ran out. Harmless when many do it: each expiry is applied once."""

    def __init__(self, store: Store, queue: QueueRef, limit: int = RECOVER_LIMIT) -> None:
        self._store = store
        self._queue = queue
        self._limit = limit

    async def tick(self) -> bool:
        """Recover one batch; True when there may be more."""
        leases = await self._store.expired(self._queue, self._limit)
        recovered = await self.recover(leases)
        # Without progress an immediate repeat would only find the same leases.
        return len(leases) >= self._limit and recovered > 0

    async def recover(self, leases: Sequence[ExpiredLease]) -> int:
        """Apply what follows for these leases; how many were recovered by this call."""
        decided = [(lease, expiry) for lease in leases if (expiry := self._decided(lease)) is not None]
        if not decided:
            return 0
        answers = await self._store.expire(self._queue, [expiry for _, expiry in decided])
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
        """What follows; None for a lease that this process keeps, or of whose job nothing can be decided."""
        if is_kept(lease.token):
            return None
        try:
            return decide.expire(lease, random.uniform)
        except Exception:
            # One record that cannot be used must not keep the leases of others from coming back.
            about = {"tenant": self._queue.tenant, "queue": self._queue.name, "job": lease.id}
            _LOGGER.exception("cannot decide what follows for a lease that ran out", extra=about)
            return None
