"""`penstock jobs`: look at jobs, cancel them, run them again, and ask why one is not running."""

import re
from typing import Annotated, Any, Final

import typer

from penstock.cli.address import find_job
from penstock.cli.desk import Desk, command, setting
from penstock.cli.output import local
from penstock.cli.records import (
    child_document,
    child_fields,
    event_line,
    job_document,
    job_fields,
    states_of,
)
from penstock.core.errors import OptionError, WrongStateError
from penstock.core.job import Job
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.explain.events import events_of
from penstock.explain.facts import gather
from penstock.explain.sentences import explain
from penstock.stores.values import Query

group = typer.Typer(help="Look at jobs, cancel them, run them again.", no_args_is_help=True)

_CURSOR: Final = re.compile(r"[0-9]{1,15}/.+")

Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids, bare or as queue/id", show_default=False)]
Id = Annotated[str, typer.Argument(metavar="ID", help="An id, bare or as queue/id", show_default=False)]


@command(group, "list", prefix="list")
async def list_jobs(
    desk: Desk,
    queue: Annotated[str | None, typer.Option(help="Only this queue")] = None,
    state: Annotated[str | None, typer.Option(help="Only these states, such as pending,delayed")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task")] = None,
    limit: Annotated[str | None, setting("list.limit", "How many at most", metavar="N")] = None,
    after: Annotated[str | None, typer.Option(help="Go on after a page: its `next`; needs --queue")] = None,
) -> None:
    """List jobs, the newest first."""
    if after is not None and queue is None:
        raise typer.BadParameter("--after needs --queue: every queue has its own pages")
    if after is not None and _CURSOR.fullmatch(after) is None:
        raise OptionError("--after", after, "what `next` says of the page before")
    states, many = states_of(state), desk.settings.list.limit
    found: list[Job] = []
    more: str | None = None
    async with desk.store() as store:
        for info in await desk.queues(store, queue):
            query = Query(
                states=states,
                task=task,
                limit=many,
                after=after,
                payloads=False,
                results=desk.settings.json,
            )
            page = await store.find(info.queue, query)
            found += page.jobs
            more = page.next if queue is not None else None
    by_end = bool(states) and all(each.is_ended for each in states)
    found.sort(key=lambda job: ((job.ended_at or 0) if by_end else job.enqueued_at, job.id), reverse=True)
    found = found[:many]
    document: dict[str, Any] = {"jobs": [job_document(job) for job in found]}
    desk.out.document(document if more is None else document | {"next": more})
    desk.out.table(
        ["id", "queue", "task", "state", "attempts", "enqueued", "reason", "error"],
        (
            (
                job.id,
                job.queue,
                job.task,
                job.state,
                f"{job.attempts}/{job.options.max_attempts}",
                local(job.enqueued_at),
                job.reason,
                (job.error or "").partition("\n")[0],
            )
            for job in found
        ),
        drop=["enqueued", "attempts", "reason", "task", "queue"],
    )
    if more is not None:
        desk.out.line(f"more with: --after {more}")


@command(group, "show")
async def show(
    desk: Desk,
    id: Id,  # noqa: A002 (the word for it)
    payload: Annotated[bool, typer.Option("--payload", help="Show the payload too")] = False,
) -> None:
    """Show one job: its record and its events."""
    async with desk.store() as store:
        job = await find_job(desk, store, id)
        events, whole = await events_of(store, job.ref, job)
        children = await store.children(job.ref, job.id)
        now = await store.now()
    document = job_document(job, payload=payload) | {"events": events, "events_complete": whole}
    kin = {"children": [child_document(child) for child in children]} if children else {}
    desk.out.document(document | kin)
    desk.out.fields(job_fields(job, now, payload=payload) + child_fields(children))
    desk.out.line()
    desk.out.line("events" if whole else "events (older ones are no longer in the log)")
    for event in events:
        desk.out.line(f"  {event_line(event, queue=False)}")


@command(group, "cancel")
async def cancel(desk: Desk, ids: Ids) -> None:
    """Cancel jobs: what waits is taken back, what runs is asked to stop."""
    await _each(desk, ids, "cancel")


@command(group, "retry")
async def retry(desk: Desk, ids: Ids) -> None:
    """Run dead, failed or cancelled jobs again, with all their attempts."""
    await _each(desk, ids, "redrive")


@command(group, "explain")
async def explain_job(desk: Desk, id: Id) -> None:  # noqa: A002 (the word for it)
    """Say why a job is not running."""
    async with desk.store() as store:
        facts = await gather(store, await find_job(desk, store, id))
    sentences = explain(facts)
    desk.out.document(
        {"id": facts.job.id, "queue": facts.job.queue, "state": facts.job.state, "because": sentences}
    )
    for sentence in sentences:
        desk.out.line(sentence)


async def _each(desk: Desk, ids: list[str], move: str) -> None:
    outcomes: list[tuple[Job, Applied | Refused]] = []
    async with desk.store() as store:
        act = store.cancel if move == "cancel" else store.redrive
        for text in ids:
            job = await find_job(desk, store, text)
            outcomes.append((job, (await act(job.ref, [job.id]))[0]))
    desk.out.document(
        {
            "jobs": [
                {
                    "id": job.id,
                    "queue": job.queue,
                    "applied": isinstance(outcome, Applied),
                    "state": outcome.state,
                }
                for job, outcome in outcomes
            ]
        }
    )
    refused = []
    for job, outcome in outcomes:
        if isinstance(outcome, Applied):
            asked = " and asked to stop" if outcome.cancel_requested else ""
            desk.out.line(f"{job.queue}/{job.id} is {outcome.state}{asked}")
        else:
            gone = outcome.why is Refusal.MISSING
            refused.append(f"{job.queue}/{job.id} is {'gone' if gone else outcome.state or job.state}")
    if refused:
        able = (
            "live jobs can be cancelled"
            if move == "cancel"
            else "dead, failed or cancelled jobs can be retried"
        )
        raise WrongStateError(f"{', '.join(refused)}: only {able}")
