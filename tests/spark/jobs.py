"""Jobs to fill stores with, and what their rows should be."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from penstock.core.flows import JobRef
from penstock.core.job import Job, NewJob, Options, QueueRef
from penstock.core.moves import Bury, Complete, Fault, Snooze
from penstock.stores.protocol import Store
from penstock.stores.values import Query

QUEUE: Final = QueueRef("default", "mail")
OTHER: Final = QueueRef("default", "reports")
FOREIGN: Final = QueueRef("acme", "mail")


def new_job(id: str, **more: Any) -> NewJob:  # noqa: A002 (as it is called everywhere)
    """A job to enqueue."""
    return NewJob(**{"id": id, "nonce": f"n-{id}", "task": "send", "payload": b'{"a":1}', **more})


async def fill(store: Store) -> list[Job]:
    """Jobs of every kind in three queues of two tenants; their records."""
    await store.moves.enqueue(
        QUEUE,
        [
            new_job("completed", priority=9),
            new_job("dead", priority=8, task="bill"),
            new_job("active", priority=7),
            new_job("pending", key="a\\b", idempotency_key="k\\0", options=Options(max_attempts=7)),
            new_job("delayed", delay_ms=3_600_000, headers={"order": "7", "note": "grüße"}),
            new_job("scheduled", delay_ms=3_600_000, schedule="nightly", instant=1_700_000_000_000),
            new_job("blocked", awaits=(JobRef("reports", "other"),), parents=(JobRef("reports", "other"),)),
            new_job("cancelled", delay_ms=60_000),
        ],
    )
    await store.moves.enqueue(
        OTHER, [new_job("other", task="print", payload=b'{"text":"\\u00e4 \xc3\xa4 \'"}')]
    )
    await store.moves.enqueue(FOREIGN, [new_job("completed")])
    done, dead, _ = (await store.moves.claim(QUEUE, worker="w", limit=3, lease_ms=60_000)).jobs
    fault = Fault("error", "first line\nsecond 'line'", "f1")
    await store.moves.settle(QUEUE, [Complete(done.id, done.token, b"[1]"), Bury(dead.id, dead.token, fault)])
    await store.moves.cancel(QUEUE, ["cancelled"])
    (snoozed,) = (await store.moves.claim(OTHER, worker="w", limit=1, lease_ms=60_000)).jobs
    await store.moves.settle(OTHER, [Snooze(snoozed.id, snoozed.token, 1_000)])
    return [job for queue in (QUEUE, OTHER, FOREIGN) for job in await all_of(store, queue)]


async def all_of(store: Store, queue: QueueRef) -> list[Job]:
    """Every record of a queue."""
    page = await store.reads.find(queue, Query(limit=1_000))
    return page.jobs


def row_of(job: Job) -> dict[str, Any]:
    """What the table says of a job."""
    return {
        "tenant": job.tenant,
        "queue": job.queue,
        "id": job.id,
        "task": job.task,
        "state": str(job.state),
        "priority": job.priority,
        "key": job.key,
        "idempotency_key": job.idempotency_key,
        "enqueued_at": moment(job.enqueued_at),
        "visible_at": moment(job.visible_at),
        "deadline": moment(job.deadline),
        "ended_at": moment(job.ended_at),
        "version": job.version,
        "drive": job.drive,
        "delivery": job.delivery,
        "attempts": job.attempts,
        "max_attempts": job.options.max_attempts,
        "worker": job.worker,
        "fence": job.fence,
        "cancel_requested": job.cancel_requested,
        "reason": job.reason,
        "error": job.error,
        "fingerprint": job.fingerprint,
        "schedule": job.schedule,
        "instant": moment(job.instant),
        "parents": [str(parent) for parent in job.parents] or None,
        "headers": (msgspec.json.encode(job.headers, order="sorted").decode() if job.headers else None),
        "options": msgspec.json.encode(job.options).decode(),
        "payload": job.payload.decode(),
        "result": None if job.result is None else job.result.decode(),
        "progress": None if job.progress is None else job.progress.decode(),
    }


def moment(millis: int | None) -> datetime | None:
    """A time of a record as a time of a row."""
    return None if millis is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
