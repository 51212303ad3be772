"""`penstock schedules`: what runs when; add, pause, resume, run now, remove, prune."""

from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from penstock.app.planning import make_schedule, spec_of
from penstock.cli.arguments import encode_arguments, fit_arguments, read_arguments
from penstock.cli.desk import Desk, command, no_queue
from penstock.cli.output import without_none
from penstock.client.client import unknown_queue
from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.spec import Cron
from penstock.core.errors import ConfigError, OptionError
from penstock.core.names import check_name
from penstock.core.payload import decode_json
from penstock.scheduler.book import ScheduleBook, ScheduleInfo
from penstock.settings import seconds
from penstock.stores.protocol import Store
from penstock.tasks.call import Call
from penstock.tasks.options import JobOptions

group = typer.Typer(help="See what runs when; add, pause, resume, run now, remove.", no_args_is_help=True)

SHOWN_RUNS = 5

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name", show_default=False)]


@command(group, "list")
async def list_schedules(desk: Desk) -> None:
    """List the schedules with their next runs."""
    async with desk.store() as store:
        found = await _book(desk, store).list()
    desk.out.document({"schedules": [_document(each) for each in found]})
    desk.out.table(
        ["schedule", "queue", "task", "next", "when"],
        ((each.name, each.queue, each.task, _next(each), each.when) for each in found),
        drop=["queue", "task"],
    )


@command(group, "show")
async def show(
    desk: Desk,
    name: Name,
    runs: Annotated[int, typer.Option(min=1, max=100, help="How many next runs to show")] = SHOWN_RUNS,
) -> None:
    """Show one schedule: its job, its policy, its next runs."""
    async with desk.store() as store:
        found = await _book(desk, store).show(name)
        coming = await _book(desk, store).next_runs(name, runs)
    schedule = found.schedule
    desk.out.document(_document(found) | {"next_runs": [_iso(each) for each in coming]})
    desk.out.fields(
        [
            ("schedule", found.name),
            ("when", found.when),
            ("cron", schedule.spec.expression if isinstance(schedule.spec, Cron) else None),
            ("queue", found.queue),
            ("task", found.task),
            ("payload", schedule.payload.decode()),
            ("catch up", _catch_up(found)),
            ("paused", "yes" if found.paused else "no"),
            ("last", _iso(found.last_at)),
            ("next", _next(found)),
            ("then", "\n".join(str(_iso(each)) for each in coming[1:]) or None),
        ]
    )


@command(group, "pause")
async def pause(desk: Desk, name: Name) -> None:
    """Let a schedule fire no more until it is resumed."""
    async with desk.store() as store:
        _tell(desk, await _book(desk, store).pause(name))


@command(group, "resume")
async def resume(desk: Desk, name: Name) -> None:
    """Let a paused schedule fire again, from now on."""
    async with desk.store() as store:
        _tell(desk, await _book(desk, store).resume(name))


@command(group, "run")
async def run(desk: Desk, name: Name) -> None:
    """Enqueue a schedule's job now, beside its usual times."""
    async with desk.store() as store:
        queue, job = await _book(desk, store).run_now(name)
    desk.out.document({"schedule": name, "queue": queue, "id": job})
    desk.out.line(job)


@command(group, "remove")
async def remove(desk: Desk, name: Name) -> None:
    """Forget a schedule; jobs that it made stay. One that an app declares comes back with its workers."""
    async with desk.store() as store:
        gone = await _book(desk, store).remove(name)
    desk.out.document(_document(gone) | {"removed": True})
    desk.out.line(f"removed schedule {name!r}: {gone.when}")


@command(group, "prune")
async def prune(
    desk: Desk,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only name them")] = False,
) -> None:
    """Remove schedules of the app's queues that code declared once and the app no longer does."""
    if desk.app is None:
        raise ConfigError(
            "no app is named: give --app MODULE:APP, such as shop.jobs:app, or set PENSTOCK_APP"
        )
    with desk.app.using(desk.make_store()) if desk.settings.url else nullcontext():
        async with desk.app:
            schedules = desk.app.schedules
            found = await (schedules.undeclared() if dry_run else schedules.prune())
    desk.out.document({"schedules": [_document(each) for each in found], "removed": not dry_run})
    for each in found:
        desk.out.line(f"{'would remove' if dry_run else 'removed'} schedule {each.name!r}: {each.when}")
    if not found:
        desk.out.line("the app declares all schedules that code declared")


@command(group, "add")
async def add(
    desk: Desk,
    name: Name,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Its arguments", show_default=False)
    ] = None,
    payload: Annotated[
        str | None, typer.Option(metavar="JSON", help="Arguments as a JSON object, @file, or - for stdin")
    ] = None,
    cron: Annotated[str | None, typer.Option(metavar="EXPR", help="Five fields, such as '0 3 * * *'")] = None,
    zone: Annotated[str, typer.Option(help="Whose clocks the fields are read on")] = "UTC",
    every: Annotated[str | None, typer.Option(metavar="TIME", help="Or an interval, such as 10m")] = None,
    queue: Annotated[
        str | None, typer.Option(help="The queue; with an app, the task's own if not given")
    ] = None,
    catch_up: Annotated[str, typer.Option(help="Missed runs: none, last or all")] = "last",
    catch_up_limit: Annotated[int, typer.Option(help="How many with all")] = 100,
    starts_at: Annotated[str | None, typer.Option(metavar="TIME", help="Not before")] = None,
    ends_at: Annotated[str | None, typer.Option(metavar="TIME", help="Not after")] = None,
    priority: Annotated[str | None, typer.Option(help="0 to 9, or low, normal, high, critical")] = None,
    key: Annotated[str | None, typer.Option(help="The concurrency key of its jobs")] = None,
) -> None:
    """Add a schedule, or replace the one of that name."""
    if (cron is None) == (every is None):
        raise ConfigError("a schedule has either --cron or --every")
    when = cron if cron is not None else timedelta(seconds=seconds("--every", every or ""))
    options = JobOptions.of(
        without_none(  # type: ignore[arg-type]
            priority=int(priority) if priority is not None and priority.isdecimal() else priority, key=key
        )
    )
    schedule = make_schedule(
        name,
        spec_of(when, zone),
        call := _call(desk, task, queue, arguments or [], payload, options),
        **without_none(
            catch_up=catch_up,
            catch_up_limit=catch_up_limit,
            starts_at=_time("--starts-at", starts_at),
            ends_at=_time("--ends-at", ends_at),
        ),
    )
    async with desk.store(may_be_new=desk.settings.url is None) as store:
        declared = [] if desk.app is None else desk.app.queues
        if call.queue not in declared and await store.queue(desk.ref(call.queue)) is None:
            raise unknown_queue(call.queue, [each.queue.name for each in await store.queues(desk.tenant)])
        await _book(desk, store).put(call.queue, schedule)
        _tell(desk, await _book(desk, store).show(name))


def _book(desk: Desk, store: Store) -> ScheduleBook:
    return ScheduleBook(store, desk.tenant)


def _call(
    desk: Desk, task: str, queue: str | None, words: list[str], payload: str | None, options: JobOptions
) -> Call[Any]:
    """With an app the task and its arguments are checked; without, any task goes."""
    values = read_arguments(words, payload)
    if desk.app is not None:
        known = desk.app.registry.require(task)
        return Call(
            task=task,
            queue=queue or known.queue,
            payload=fit_arguments(known, values),
            options=options.over(known.defaults),
            decode=lambda _: None,
        )
    if queue is None:
        raise no_queue()
    return Call(
        task=check_name("task", task),
        queue=queue,
        payload=encode_arguments(values),
        options=options,
        decode=lambda _: None,
    )


def _time(option: str, text: str | None) -> datetime | None:
    """A time without an offset is one of the clock on the user's wall."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise OptionError(option, text, "a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00Z") from None


def _tell(desk: Desk, found: ScheduleInfo) -> None:
    desk.out.document(_document(found))
    desk.out.line(f"schedule {found.name!r} runs {found.when}; next: {_next(found)}")


def _document(found: ScheduleInfo) -> dict[str, Any]:
    schedule, spec = found.schedule, found.schedule.spec
    if found.fault is not None:
        return {"schedule": found.name, "queue": found.queue, "paused": found.paused, "fault": found.fault}
    timing = (
        {"cron": spec.expression, "zone": spec.zone}
        if isinstance(spec, Cron)
        else {"every_seconds": spec.every_ms / 1000}
    )
    return timing | without_none(
        schedule=found.name,
        queue=found.queue,
        task=found.task,
        when=found.when,
        payload=decode_json("payload", schedule.payload),
        priority=schedule.priority,
        key=schedule.key,
        catch_up=schedule.catch_up,
        catch_up_limit=schedule.catch_up_limit if schedule.catch_up is CatchUp.ALL else None,
        paused=found.paused,
        next_at=_iso(found.next_at),
        last_at=_iso(found.last_at),
    )


def _catch_up(found: ScheduleInfo) -> str:
    policy = found.schedule.catch_up
    return f"all, {found.schedule.catch_up_limit} at most" if policy is CatchUp.ALL else policy.value


def _next(found: ScheduleInfo) -> str:
    if found.fault is not None:
        return "never: remove it"
    if found.paused:
        return "paused"
    return _iso(found.next_at) or "never again"


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
