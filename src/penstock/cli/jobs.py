"""`penstock jobs`: look at jobs, cancel them, run them again, delete them, and ask why one is not running."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from penstock.cli.address import find_job
from penstock.cli.desk import Desk, command, setting
from penstock.cli.error_groups import show_groups
from penstock.cli.output import local
from penstock.cli.records import (
    child_document,
    child_fields,
    event_line,
    job_document,
    job_fields,
    states_of,
)
from penstock.cli.selection import (
    Action,
    AtMost,
    Condition,
    DryRun,
    Key,
    Queue,
    Reason,
    Since,
    States,
    Task,
    Yes,
    YesOrAll,
    act_on_all,
    selected,
    selection,
)
from penstock.client.job_filter import matching_pages
from penstock.core.errors import OptionError, WrongStateError
from penstock.core.job import Job
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import LIVE, REDRIVABLE, State
from penstock.explain.events import events_of
from penstock.explain.facts import gather
from penstock.explain.sentences import explain

group = typer.Typer(help="Look at jobs, cancel them, run them again, delete them.", no_args_is_help=True)

_CURSOR: Final = re.compile(r"[0-9]{1,15}/.+")

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID…]", help="Ids, bare or as queue/id, instead of options", show_default=False),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="An id, bare or as queue/id", show_default=False)]

DELETABLE: Final = frozenset(State) - {State.ACTIVE}
CANCEL: Final = Action("Cancel {many} jobs?", "cancelled", "had ended")
RETRY: Final = Action("Run {many} jobs again?", "redriven", "had moved on")
DELETE: Final = Action("Delete {many} jobs for good?", "deleted", "ran, or were gone")
RETRIED: Final = frozenset({State.DEAD, State.FAILED})
"""What is run again in bulk unless other states are named: somebody decided to cancel what is cancelled."""


@command(group, "list", prefix="list")
async def list_jobs(
    desk: Desk,
    queue: Queue = None,
    state: States = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: Annotated[str | None, setting("list.limit", "How many at most", metavar="N")] = None,
    after: Annotated[str | None, typer.Option(help="Go on after a page: its `next`; needs --queue")] = None,
    by_kind: Annotated[bool, typer.Option("--group", help="One row per kind of error")] = False,
) -> None:
    """List jobs, the newest first."""
    if after is not None and queue is None:
        raise typer.BadParameter("--after needs --queue: every queue has its own pages")
    if after is not None and _CURSOR.fullmatch(after) is None:
        raise OptionError("--after", after, "what `next` says of the page before")
    many = desk.settings.list.limit
    wanted = selection(
        states=states_of(state), queue=queue, task=task, key=key, since=since, reason=reason, where=where
    )
    found: list[Job] = []
    async with desk.store() as store:
        if by_kind:
            await show_groups(desk, selected(desk, store, wanted), many)
            return
        now = await store.now()
        filtered, results = wanted.at(now), desk.settings.json
        for info in await desk.queues(store, queue):
            # One more than is shown, to see whether there is a next page.
            pages = matching_pages(
                store, info.queue, filtered, now, limit=many + 1, after=after, results=results
            )
            found += [job async for jobs in pages for job in jobs]
    found.sort(key=lambda job: (filtered.age(job), job.id), reverse=True)
    more = filtered.cursor(found[many - 1]) if queue is not None and len(found) > many else None
    found = found[:many]
    document: dict[str, Any] = {"jobs": [job_document(job) for job in found]}
    desk.out.document(document if more is None else document | {"next": more})
    show_jobs(desk, found)
    if more is not None:
        desk.out.line(f"more with: --after {more}")


def show_jobs(desk: Desk, jobs: Sequence[Job]) -> None:
    """A table of jobs in any state."""
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
            for job in jobs
        ),
        drop=["enqueued", "attempts", "reason", "task", "queue"],
    )


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
async def cancel(
    desk: Desk,
    ids: Ids = None,
    queue: Queue = None,
    state: States = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Cancel jobs, by id or by options: what waits is taken back, what runs is asked to stop."""
    states = _states(state, LIVE, LIVE)
    wanted = selection(
        states=states, queue=queue, task=task, key=key, since=since, reason=reason, where=where, limit=limit
    )
    if ids:
        _refuse_options(wanted.is_narrow or state is not None or queue is not None or dry_run)
        await _each(desk, ids, "cancel")
        return
    await act_on_all(desk, wanted, CANCEL, show_jobs, asks=not yes, dry_run=dry_run)


@command(group, "retry")
async def retry(
    desk: Desk,
    ids: Ids = None,
    queue: Queue = None,
    state: States = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: YesOrAll = False,
) -> None:
    """Run dead, failed or cancelled jobs again, with all their attempts: by id, or all that the options mean.

    Options without --state mean dead and failed jobs, which keep their order.
    """
    states = _states(state, RETRIED, REDRIVABLE)
    wanted = selection(
        states=states, queue=queue, task=task, key=key, since=since, reason=reason, where=where, limit=limit
    )
    if ids:
        _refuse_options(wanted.is_narrow or state is not None or queue is not None or dry_run)
        await _each(desk, ids, "redrive")
        return
    await act_on_all(desk, wanted, RETRY, show_jobs, asks=not yes and not wanted.is_narrow, dry_run=dry_run)


@command(group, "delete")
async def delete(
    desk: Desk,
    ids: Ids = None,
    queue: Queue = None,
    state: States = None,
    task: Task = None,
    key: Key = None,
    since: Since = None,
    reason: Reason = None,
    where: Condition = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete jobs that are not running: by id, or all that the options mean, which need --state then."""
    if not ids and state is None:
        raise OptionError("--state", None, "ids, or some states to delete jobs in, such as failed")
    states = _states(state, DELETABLE, DELETABLE)
    wanted = selection(
        states=states, queue=queue, task=task, key=key, since=since, reason=reason, where=where, limit=limit
    )
    if ids:
        _refuse_options(wanted.is_narrow or state is not None or queue is not None or dry_run)
        await _each(desk, ids, "delete")
        return
    await act_on_all(desk, wanted, DELETE, show_jobs, asks=not yes, dry_run=dry_run)


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
        raise typer.BadParameter("either ids or options that say which jobs are meant, not both")


async def _each(desk: Desk, ids: list[str], move: str) -> None:
    outcomes: list[tuple[Job, Applied | Refused]] = []
    async with desk.store() as store:
        act = {"cancel": store.cancel, "redrive": store.redrive, "delete": store.delete}[move]
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
            now = "deleted" if move == "delete" else outcome.state
            desk.out.line(f"{job.queue}/{job.id} is {now}{asked}")
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
