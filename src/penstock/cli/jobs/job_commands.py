"""`penstock jobs`: list, show, cancel, retry and delete jobs, and explain why one is not running."""

import re
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.jobs.error_groups import print_error_groups
from penstock.cli.jobs.job_lookup import find_job
from penstock.cli.jobs.job_output import (
    child_document,
    child_fields,
    event_line,
    job_document,
    job_fields,
    states_of,
)
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
    states_option,
)
from penstock.cli.options import setting
from penstock.cli.registration import command, command_group
from penstock.client.job_filter import matching_pages
from penstock.core.errors import OptionError, WrongStateError
from penstock.core.job import Job
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import LIVE, REDRIVABLE, State
from penstock.explain.job_events import read_job_events
from penstock.explain.job_facts import gather_facts
from penstock.explain.sentences import explain

group = command_group("List, show, cancel, retry and delete jobs.")

_CURSOR: Final = re.compile(r"[0-9]{1,15}/.+")

Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID",
        help="Ids of jobs, as ID or QUEUE/ID, instead of options that select them",
        show_default=False,
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a job, as ID or QUEUE/ID", show_default=False)]

DELETABLE: Final = frozenset(State) - {State.ACTIVE}
CANCEL: Final = BulkAction("Cancel {many} jobs?", "cancelled", "had ended")
RETRY: Final = BulkAction("Run {many} jobs again?", "redriven", "had moved on")
DELETE: Final = BulkAction("Delete {many} jobs for good?", "deleted", "ran, or were gone")
RETRIED: Final = frozenset({State.DEAD, State.FAILED})
"""The states that a retry in bulk selects by default, without cancelled jobs: those were ended on purpose."""


@command(group, "list", prefix="list")
async def list_jobs(
    context: CommandContext,
    queue: Queue = None,
    state: Annotated[str | None, states_option("all states")] = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: Annotated[
        str | None, setting("list.limit", "Maximum number of rows, such as 100", metavar="N")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="Continue after the job with this cursor; needs --queue"),
    ] = None,
    by_kind: Annotated[
        bool, typer.Option("--group", help="Count the jobs by queue, task and kind of error")
    ] = False,
) -> None:
    """List jobs, the newest first.

    With --json and --queue each job has a cursor, at which --after continues.
    """
    if after is not None and queue is None:
        raise typer.BadParameter("--after needs --queue: every queue has its own pages")
    if after is not None and _CURSOR.fullmatch(after) is None:
        raise OptionError("--after", after, "the cursor of a job, which --json prints")
    many = context.settings.list.limit
    wanted = select_jobs(
        states=states_of(state), queue=queue, task=task, key=key, since=since, reason=reason, where=where
    )
    found: list[Job] = []
    async with context.store() as store:
        if by_kind:
            await print_error_groups(
                context, selected_jobs(context, store, wanted), many, await store.clock.now()
            )
            return
        now = await store.clock.now()
        filtered, results = wanted.at(now), context.settings.json
        for info in await context.queues(store, queue):
            # One job more than is printed tells whether there is a next page.
            pages = matching_pages(
                store.reads, info.queue, filtered, now, limit=many + 1, after=after, results=results
            )
            found += [job async for jobs in pages for job in jobs]
    found.sort(key=lambda job: (filtered.age(job), job.id), reverse=True)
    more = filtered.cursor(found[many - 1]) if queue is not None and len(found) > many else None
    found = found[:many]
    cursors = [{} if queue is None else {"cursor": filtered.cursor(job)} for job in found]
    context.out.documents(job_document(job) | cursor for job, cursor in zip(found, cursors, strict=True))
    print_jobs(context, found, now)
    if more is not None:
        context.out.line(f"more with: --after {more}")


def print_jobs(context: CommandContext, jobs: Sequence[Job], now: int) -> None:
    """Print a table of jobs in any state."""
    context.out.table(
        ["id", "queue", "task", "state", "attempts", "enqueued", "reason", "error"],
        (
            (
                job.id,
                job.queue,
                job.task,
                job.state,
                f"{job.attempts}/{job.options.max_attempts}",
                context.out.time(job.enqueued_at, now),
                job.reason,
                (job.error or "").partition("\n")[0],
            )
            for job in jobs
        ),
        drop=["enqueued", "attempts", "reason", "task", "queue"],
    )


@command(group, "show")
async def show(
    context: CommandContext,
    id: Id,  # noqa: A002 (the word for it)
    payload: Annotated[bool, typer.Option("--payload", help="Print the payload too")] = False,
) -> None:
    """Show the record and the events of a job."""
    async with context.store() as store:
        job = await find_job(context, store, id)
        events, whole = await read_job_events(store, job.ref, job)
        children = await store.flows.children(job.ref, job.id)
        now = await store.clock.now()
    document = job_document(job, payload=payload) | {"events": events, "events_complete": whole}
    child_documents = {"children": [child_document(child) for child in children]} if children else {}
    context.out.document(document | child_documents)
    context.out.fields(job_fields(job, now, payload=payload) + child_fields(children))
    context.out.line()
    context.out.line("events" if whole else "events (older ones are no longer in the log)")
    for event in events:
        context.out.line(f"  {event_line(event, queue=False)}")


@command(group, "cancel")
async def cancel(
    context: CommandContext,
    ids: Ids = None,
    queue: Queue = None,
    state: Annotated[
        str | None, states_option("all live states: blocked, pending, delayed and active")
    ] = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: MaxJobs = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Cancel jobs by id, or all jobs that the options select.

    Waiting jobs are cancelled at once; handlers of running jobs are asked to stop.
    """
    states = _states(state, LIVE, LIVE)
    wanted = select_jobs(
        states=states, queue=queue, task=task, key=key, since=since, reason=reason, where=where, limit=limit
    )
    if ids:
        _refuse_options(wanted.is_narrow or state is not None or queue is not None or dry_run)
        await _change_each(context, ids, "cancel")
        return
    await change_selected_jobs(context, wanted, CANCEL, print_jobs, asks=not yes, dry_run=dry_run)


@command(group, "retry")
async def retry(
    context: CommandContext,
    ids: Ids = None,
    queue: Queue = None,
    state: Annotated[str | None, states_option("dead,failed")] = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: MaxJobs = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Run dead, failed or cancelled jobs again, by id, or all jobs that the options select.

    The jobs get all their attempts again and keep their order. Without an option other than --queue and
    --state the command asks for confirmation.
    """
    states = _states(state, RETRIED, REDRIVABLE)
    wanted = select_jobs(
        states=states, queue=queue, task=task, key=key, since=since, reason=reason, where=where, limit=limit
    )
    if ids:
        _refuse_options(wanted.is_narrow or state is not None or queue is not None or dry_run)
        await _change_each(context, ids, "redrive")
        return
    await change_selected_jobs(
        context, wanted, RETRY, print_jobs, asks=not yes and not wanted.is_narrow, dry_run=dry_run
    )


@command(group, "delete")
async def delete(
    context: CommandContext,
    ids: Ids = None,
    queue: Queue = None,
    state: Annotated[str | None, states_option("none; required without ids")] = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: MaxJobs = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete jobs that are not running, by id, or all jobs that --state and the other options select.

    Without ids --state is required.
    """
    if not ids and state is None:
        raise OptionError("--state", None, "ids of jobs, or the states to delete, such as failed")
    states = _states(state, DELETABLE, DELETABLE)
    wanted = select_jobs(
        states=states, queue=queue, task=task, key=key, since=since, reason=reason, where=where, limit=limit
    )
    if ids:
        _refuse_options(wanted.is_narrow or state is not None or queue is not None or dry_run)
        await _change_each(context, ids, "delete")
        return
    await change_selected_jobs(context, wanted, DELETE, print_jobs, asks=not yes, dry_run=dry_run)


@command(group, "explain")
async def explain_job(context: CommandContext, id: Id) -> None:  # noqa: A002 (the word for it)
    """Explain why a job is not running."""
    async with context.store() as store:
        facts = await gather_facts(store, await find_job(context, store, id))
    sentences = explain(facts)
    context.out.document(
        {"id": facts.job.id, "queue": facts.job.queue, "state": facts.job.state, "because": sentences}
    )
    for sentence in sentences:
        context.out.line(sentence)


def _states(text: str | None, default: frozenset[State], able: frozenset[State]) -> frozenset[State]:
    """The named states, or the default; OptionError for a state whose jobs the command cannot change."""
    states = states_of(text) or default
    for state in State:
        if state in states - able:
            wanted = f"some of {', '.join(each for each in State if each in able)}, joined by commas"
            raise OptionError("--state", str(state), wanted)
    return states


def _refuse_options(are_given: bool) -> None:
    if are_given:
        raise typer.BadParameter("either ids or options that select jobs, not both")


async def _change_each(context: CommandContext, ids: list[str], move: str) -> None:
    outcomes: list[tuple[Job, Applied | Refused]] = []
    async with context.store() as store:
        act = {"cancel": store.moves.cancel, "redrive": store.moves.redrive, "delete": store.moves.delete}[
            move
        ]
        for text in ids:
            job = await find_job(context, store, text)
            outcomes.append((job, (await act(job.ref, [job.id]))[0]))
    context.out.documents(
        {
            "id": job.id,
            "queue": job.queue,
            "applied": isinstance(outcome, Applied),
            "state": outcome.state,
        }
        for job, outcome in outcomes
    )
    refused = []
    for job, outcome in outcomes:
        if isinstance(outcome, Applied):
            asked = " and asked to stop" if outcome.cancel_requested else ""
            now = "deleted" if move == "delete" else outcome.state
            context.out.line(f"{job.queue}/{job.id} is {now}{asked}")
        else:
            gone = outcome.why is Refusal.MISSING
            refused.append(f"{job.queue}/{job.id} is {'gone' if gone else outcome.state or job.state}")
    if refused:
        able = {
            "cancel": "live jobs can be cancelled",
            "redrive": "dead, failed or cancelled jobs can be retried",
            "delete": "jobs that are not running can be deleted",
        }[move]
        raise WrongStateError(f"{', '.join(refused)}: only {able}")
