"""Turns the settlements that a worker sends into moves, as the core decides them for any worker."""

import random
from collections.abc import Sequence
from typing import Final

from penstock.core import decide, moves
from penstock.core.decide import Interrupted, Postponed, Raised, Returned
from penstock.core.job import Claimed, Job, Options, QueueRef
from penstock.core.moves import Fault, Move, Settlement
from penstock.core.outcomes import repeated
from penstock.service.wire.claims import (
    AnySettlement,
    CompleteSettlement,
    FailSettlement,
    ReleaseSettlement,
    RetrySettlement,
    SnoozeSettlement,
)
from penstock.service.wire.jobs import checked_json
from penstock.service.yielding import Yielder
from penstock.stores.portions import slim_jobs
from penstock.stores.protocol import Reads

_NO_FAULT: Final = Fault(decide.ERROR)


async def settlements(
    store: Reads, queue: QueueRef, reports: Sequence[AnySettlement], yielder: Yielder
) -> list[Settlement]:
    """The move of each settlement. A retry needs the job's record, for its attempts and backoff."""
    ids = list(dict.fromkeys(reported.id for reported in reports if isinstance(reported, RetrySettlement)))
    records: dict[str, Job] = {}
    if ids:
        records = {job.id: job for job in await slim_jobs(store, queue, ids) if job is not None}
    found: list[Settlement] = []
    for place, reported in enumerate(reports):
        found.append(_settlement(place, reported, records.get(reported.id)))
        await yielder.checkpoint()
    return found


def _settlement(place: int, reported: AnySettlement, job: Job | None) -> Settlement:
    if isinstance(reported, RetrySettlement) and (again := _repeated(reported, job)) is not None:
        return again
    return decide.settle(_claimed(reported, job), _ending(place, reported), random.uniform)


def _ending(place: int, reported: AnySettlement) -> decide.Ending:
    match reported:
        case CompleteSettlement(result=result):
            checked_json(f"settlements[{place}].result", bytes(result))
            return Returned(bytes(result))
        case FailSettlement(error=error, reason=reason):
            return decide.RaisedFail(error, reason)
        case SnoozeSettlement(delay=delay):
            return Postponed(round(delay * 1000))
        case ReleaseSettlement(error=error):
            return Interrupted(error)
        case RetrySettlement(error=error, reason=reason, delay=after):
            return Raised(error, reason, None if after is None else round(after * 1000))


def _repeated(reported: RetrySettlement, job: Job | None) -> Settlement | None:
    """The same move as the first time, where this token was settled so before: it gets the same answer."""
    if job is None or job.token == reported.token:
        return None
    if repeated(job.settled, reported.token, Move.BURY) is not None:
        return moves.Bury(reported.id, reported.token, _NO_FAULT)
    return moves.Retry(reported.id, reported.token, 0, _NO_FAULT)


def _claimed(reported: AnySettlement, job: Job | None) -> Claimed:
    """The delivery, as the core needs it for its decision."""
    return Claimed(
        id=reported.id,
        task="" if job is None else job.task,
        payload=b"",
        priority=0,
        options=Options() if job is None else job.options,
        enqueued_at=0,
        drive=0,
        delivery=0,
        attempts=0 if job is None else job.attempts,
        token=reported.token,
        fence=0,
        deadline=0,
        last_delay_ms=None if job is None else job.last_delay_ms,
    )
