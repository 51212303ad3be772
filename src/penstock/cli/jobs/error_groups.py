"""Jobs that ended without success, counted by queue, task and kind of error."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from penstock.cli.command_context import CommandContext
from penstock.cli.output import span, utc, without_none
from penstock.core.job import Job, QueueRef


class ErrorGroup(msgspec.Struct):
    """Jobs of one queue, task and fingerprint."""

    example: Job
    count: int = 0
    first_at: int = 0
    last_at: int = 0
    reasons: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, job: Job) -> None:
        """Count one more job."""
        at = job.ended_at or job.enqueued_at
        self.first_at = min(self.first_at, at) if self.count else at
        self.last_at = max(self.last_at, at)
        self.count += 1
        self.reasons[job.reason or ""] += 1


async def print_error_groups(
    context: CommandContext, pages: AsyncIterator[tuple[QueueRef, list[Job]]], limit: int, now: int
) -> None:
    """Print one row per group, the largest first; of the jobs only their numbers are kept in memory."""
    groups: dict[tuple[str, str, str | None], ErrorGroup] = {}
    async for _, jobs in pages:
        for job in jobs:
            name = (job.queue, job.task, job.fingerprint)
            groups.setdefault(name, ErrorGroup(example=job)).add(job)
    largest = sorted(groups.items(), key=lambda each: -each[1].count)[:limit]
    rows: list[dict[str, Any]] = [
        without_none(
            count=group.count,
            queue=queue,
            task=task,
            fingerprint=fingerprint,
            reasons=dict(group.reasons),
            first_at=utc(group.first_at),
            last_at=utc(group.last_at),
            spread=span(group.last_at - group.first_at),
            example=group.example.id,
            error=(group.example.error or "").partition("\n")[0],
        )
        for (queue, task, fingerprint), group in largest
    ]
    context.out.documents(rows)
    context.out.table(
        ["count", "queue", "task", "fingerprint", "reasons", "last", "error"],
        (
            (
                row["count"],
                row["queue"],
                row["task"],
                row.get("fingerprint"),
                ", ".join(row["reasons"]),
                context.out.time(group.last_at, now),
                row["error"],
            )
            for row, (_, group) in zip(rows, largest, strict=True)
        ),
        right=frozenset({"count"}),
        drop=["last", "reasons", "fingerprint"],
    )
