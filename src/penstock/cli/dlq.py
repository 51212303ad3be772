"""`penstock dlq`: the dead jobs, one by one, by kind, and all at once."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from penstock.cli.address import find_job
from penstock.cli.desk import Desk, command, setting
from penstock.cli.error_groups import show_groups
from penstock.cli.output import local
from penstock.cli.records import event_line, job_document, job_fields
from penstock.cli.selection import (
    Action,
    AtMost,
    Condition,
    DryRun,
    Key,
    Queue,
    Reason,
    Since,
    Task,
    Yes,
    YesOrAll,
    act_on_all,
    selected,
    selection,
)
from penstock.core.errors import WrongStateError
from penstock.core.job import Job
from penstock.core.states import State
from penstock.explain.events import events_of

group = typer.Typer(help="The dead jobs: list, run again, delete.", no_args_is_help=True)

DEAD: Final = frozenset({State.DEAD})
REDRIVE: Final = Action("Run {many} dead jobs again?", "redriven", "were no longer dead")
PURGE: Final = Action("Delete {many} dead jobs for good?", "deleted", "were no longer dead")


@command(group, "list", prefix="list")
async def list_dead(
    desk: Desk,
    queue: Queue = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: Annotated[str | None, setting("list.limit", "How many at most", metavar="N")] = None,
    by_kind: Annotated[bool, typer.Option("--group", help="One row per kind of error")] = False,
) -> None:
    """List dead jobs, the newest first."""
    many = desk.settings.list.limit
    wanted = selection(
        states=DEAD,
        queue=queue,
        task=task,
        key=key,
        since=since,
        reason=reason,
        where=where,
        limit=None if by_kind else many,
    )
    async with desk.store() as store:
        if by_kind:
            await show_groups(desk, selected(desk, store, wanted), many)
            return
        found = [job async for _, jobs in selected(desk, store, wanted) for job in jobs]
    desk.out.document({"jobs": [job_document(job) for job in found]})
    show_dead(desk, found)


@command(group, "show")
async def show(
    desk: Desk,
    id: Annotated[str, typer.Argument(metavar="ID", help="An id, bare or as queue/id")],  # noqa: A002
    payload: Annotated[bool, typer.Option("--payload", help="Show the payload too")] = False,
) -> None:
    """Show one dead job with its traceback and events."""
    async with desk.store() as store:
        job = await find_job(desk, store, id)
        if job.state is not State.DEAD:
            raise WrongStateError(f"{job.queue}/{job.id} is {job.state}, not dead: see penstock jobs show")
        events, whole = await events_of(store, job.ref, job)
        now = await store.now()
    desk.out.document(job_document(job, payload=payload) | {"events": events, "events_complete": whole})
    desk.out.fields(job_fields(job, now, payload=payload))
    for event in events:
        desk.out.line(f"  {event_line(event, queue=False)}")


@command(group, "redrive")
async def redrive(
    desk: Desk,
    queue: Queue = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: YesOrAll = False,
) -> None:
    """Give dead jobs a new life, in their order: all their attempts, their own policy.

    Asks first where every dead job is meant, of a queue or of all.
    """
    wanted = selection(
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
    await act_on_all(desk, wanted, REDRIVE, show_dead, asks=asks, dry_run=dry_run)


@command(group, "purge")
async def purge(
    desk: Desk,
    queue: Queue = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete dead jobs for good."""
    wanted = selection(
        states=DEAD,
        queue=queue,
        task=task,
        key=key,
        since=since,
        reason=reason,
        where=where,
        limit=limit,
    )
    await act_on_all(desk, wanted, PURGE, show_dead, asks=not yes, dry_run=dry_run)


def show_dead(desk: Desk, jobs: Sequence[Job]) -> None:
    """A table of ended jobs."""
    desk.out.table(
        ["id", "queue", "task", "ended", "attempts", "reason", "fingerprint", "error"],
        (
            (
                job.id,
                job.queue,
                job.task,
                local(job.ended_at),
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
