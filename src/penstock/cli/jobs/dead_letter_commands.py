"""`penstock dlq`: list, show, redrive and purge dead jobs."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.jobs.error_groups import print_error_groups
from penstock.cli.jobs.job_lookup import find_job
from penstock.cli.jobs.job_output import event_line, job_document, job_fields
from penstock.cli.jobs.job_selection import (
    BulkAction,
    Condition,
    DryRun,
    Key,
    MaxJobs,
    Queue,
    Reason,
    Since,
    Task,
    Yes,
    change_selected_jobs,
    select_jobs,
    selected_jobs,
)
from penstock.cli.options import setting
from penstock.cli.registration import command, command_group
from penstock.core.errors import WrongStateError
from penstock.core.job import Job
from penstock.core.states import State
from penstock.explain.job_events import read_job_events

group = command_group("List dead jobs, run them again, delete them.")

DEAD: Final = frozenset({State.DEAD})
REDRIVE: Final = BulkAction("Run {many} dead jobs again?", "redriven", "were no longer dead")
PURGE: Final = BulkAction("Delete {many} dead jobs for good?", "deleted", "were no longer dead")


@command(group, "list", prefix="list")
async def list_dead(
    context: CommandContext,
    queue: Queue = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: Annotated[
        str | None, setting("list.limit", "Maximum number of rows, such as 100", metavar="N")
    ] = None,
    by_kind: Annotated[
        bool, typer.Option("--group", help="Count the jobs by queue, task and kind of error")
    ] = False,
) -> None:
    """List dead jobs, the newest first."""
    many = context.settings.list.limit
    wanted = select_jobs(
        states=DEAD,
        queue=queue,
        task=task,
        key=key,
        since=since,
        reason=reason,
        where=where,
        limit=None if by_kind else many,
    )
    async with context.store() as store:
        if by_kind:
            await print_error_groups(
                context, selected_jobs(context, store, wanted), many, await store.clock.now()
            )
            return
        found = [job async for _, jobs in selected_jobs(context, store, wanted) for job in jobs]
        now = await store.clock.now()
    context.out.documents(map(job_document, found))
    print_dead_jobs(context, found, now)


@command(group, "show")
async def show(
    context: CommandContext,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of a dead job, as ID or QUEUE/ID")],  # noqa: A002
    payload: Annotated[bool, typer.Option("--payload", help="Print the payload too")] = False,
) -> None:
    """Show one dead job with its traceback and events."""
    async with context.store() as store:
        job = await find_job(context, store, id)
        if job.state is not State.DEAD:
            raise WrongStateError(f"{job.queue}/{job.id} is {job.state}, not dead: see penstock jobs show")
        events, whole = await read_job_events(store, job.ref, job)
        now = await store.clock.now()
    context.out.document(job_document(job, payload=payload) | {"events": events, "events_complete": whole})
    context.out.fields(job_fields(job, now, payload=payload))
    for event in events:
        context.out.line(f"  {event_line(event, queue=False)}")


@command(group, "redrive")
async def redrive(
    context: CommandContext,
    queue: Queue = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: MaxJobs = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Run dead jobs again, in their order, with all their attempts and their own retry policy.

    Without --task, --key, --since, --reason, --where or --limit the command asks for confirmation, because it
    then runs every dead job of the queue, or of all queues, again.
    """
    wanted = select_jobs(
        states=DEAD,
        queue=queue,
        task=task,
        key=key,
        since=since,
        reason=reason,
        where=where,
        limit=limit,
    )
    asks = not yes and not wanted.is_narrow
    await change_selected_jobs(context, wanted, REDRIVE, print_dead_jobs, asks=asks, dry_run=dry_run)


@command(group, "purge")
async def purge(
    context: CommandContext,
    queue: Queue = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: MaxJobs = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete dead jobs for good."""
    wanted = select_jobs(
        states=DEAD,
        queue=queue,
        task=task,
        key=key,
        since=since,
        reason=reason,
        where=where,
        limit=limit,
    )
    await change_selected_jobs(context, wanted, PURGE, print_dead_jobs, asks=not yes, dry_run=dry_run)


def print_dead_jobs(context: CommandContext, jobs: Sequence[Job], now: int) -> None:
    """Print a table of ended jobs."""
    context.out.table(
        ["id", "queue", "task", "ended", "attempts", "reason", "fingerprint", "error"],
        (
            (
                job.id,
                job.queue,
                job.task,
                context.out.time(job.ended_at, now),
                job.attempts,
                job.reason,
                job.fingerprint,
                (job.error or "").partition("\n")[0],
            )
            for job in jobs
        ),
        right=frozenset({"attempts"}),
        drop=["fingerprint", "attempts", "reason", "queue", "ended"],
    )
