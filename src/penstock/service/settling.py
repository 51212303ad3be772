"""From what a worker says of a delivery to the move that follows: the core decides, as for any worker."""

import random
from collections.abc import Sequence
from typing import Final

from penstock.core import decide, moves
from penstock.core.decide import Interrupted, Postponed, Raised, Returned
from penstock.core.job import Claimed, Job, Options, QueueRef
from penstock.core.moves import Fault, Move, Settlement
from penstock.core.outcomes import repeated
from penstock.service.slices import Yielder
from penstock.service.wire.claims import (
    CompleteWish,
    FailWish,
    ReleaseWish,
    RetryWish,
    SettleWish,
    SnoozeWish,
)
from penstock.service.wire.jobs import checked_json
from penstock.stores.portions import slim_jobs
from penstock.stores.protocol import Reads

_NO_FAULT: Final = Fault(decide.ERROR)


async def settlements(
    store: Reads, queue: QueueRef, wishes: Sequence[SettleWish], yielder: Yielder
) -> list[Settlement]:
    """The move for each. Only a retry needs the record: how many attempts are used, and its backoff."""
    ids = list(dict.fromkeys(wish.id for wish in wishes if isinstance(wish, RetryWish)))
    records: dict[str, Job] = {}
    if ids:
        records = {job.id: job for job in await slim_jobs(store, queue, ids) if job is not None}
    found: list[Settlement] = []
    for place, wish in enumerate(wishes):
        found.append(_settlement(place, wish, records.get(wish.id)))
        await yielder.checkpoint()
    return found


def _settlement(place: int, wish: SettleWish, job: Job | None) -> Settlement:
    if isinstance(wish, RetryWish) and (again := _repeated(wish, job)) is not None:
        return again
    return decide.settle(_claimed(wish, job), _ending(place, wish), random.uniform)


def _ending(place: int, wish: SettleWish) -> decide.Ending:
    match wish:
        case CompleteWish(result=result):
            checked_json(f"settlements[{place}].result", bytes(result))
            return Returned(bytes(result))
        case FailWish(error=error, reason=reason):
            return decide.Refused(error, reason)
        case SnoozeWish(delay=delay):
            return Postponed(round(delay * 1000))
        case ReleaseWish(error=error):
            return Interrupted(error)
        case RetryWish(error=error, reason=reason, delay=after):
            return Raised(error, reason, None if after is None else round(after * 1000))


def _repeated(wish: RetryWish, job: Job | None) -> Settlement | None:
    """The same move as the first time, where this token was settled so before: it gets the same answer."""
    if job is None or job.token == wish.token:
        return None
    if repeated(job.settled, wish.token, Move.BURY) is not None:
        return moves.Bury(wish.id, wish.token, _NO_FAULT)
    return moves.Retry(wish.id, wish.token, 0, _NO_FAULT)


def _claimed(wish: SettleWish, job: Job | None) -> Claimed:
    """What the core has to know of the delivery."""
    return Claimed(
        id=wish.id,
        task="" if job is None else job.task,
        payload=b"",
        priority=0,
        options=Options() if job is None else job.options,
        enqueued_at=0,
        drive=0,
        delivery=0,
        attempts=0 if job is None else job.attempts,
        token=wish.token,
        fence=0,
        deadline=0,
        last_delay_ms=None if job is None else job.last_delay_ms,
    )
