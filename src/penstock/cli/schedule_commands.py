"""`penstock schedules`: list, show, add, pause, resume, run, remove and prune schedules."""

from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from penstock.app.planning import make_schedule, spec_of
from penstock.app.schedules import NAMED
from penstock.cli.command_context import CommandContext, no_queue
from penstock.cli.jobs.job_selection import Yes
from penstock.cli.jobs.task_arguments import encode_arguments, fit_arguments, read_arguments
from penstock.cli.output import without_none
from penstock.cli.registration import command, command_group
from penstock.client.client import unknown_queue
from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.spec import Cron
from penstock.core.errors import ConfigError, OptionError
from penstock.core.names import check_name
from penstock.core.payload import decode_json
from penstock.schedules.repository import ScheduleInfo, ScheduleRepository
from penstock.settings import seconds
from penstock.stores.protocol import Store
from penstock.tasks.call import Call
from penstock.tasks.options import JobOptions

group = command_group("List, add, pause, resume, run and remove schedules.")

DEFAULT_RUNS = 5

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the schedule, such as nightly", show_default=False)
]


@command(group, "list")
async def list_schedules(context: CommandContext) -> None:
    """List the schedules with their next runs."""
    async with context.store() as store:
        found = await _repository(context, store).list()
        now = await store.clock.now()
    context.out.documents(map(_schedule_document, found))
    context.out.table(
        ["schedule", "queue", "task", "next", "when"],
        ((each.name, each.queue, each.task, _next_run(each, context, now), each.when) for each in found),
        drop=["queue", "task"],
    )


@command(group, "show")
async def show(
    context: CommandContext,
    name: Name,
    runs: Annotated[
        int, typer.Option(metavar="N", help="Number of next runs to print", min=1, max=100)
    ] = DEFAULT_RUNS,
) -> None:
    """Show a schedule: its job, its catch-up policy and its next runs."""
    async with context.store() as store:
        found = await _repository(context, store).show(name)
        next_runs = await _repository(context, store).next_runs(name, runs)
        now = await store.clock.now()
    schedule = found.schedule
    context.out.document(_schedule_document(found) | {"next_runs": [_iso(each) for each in next_runs]})
    context.out.fields(
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
            ("next", _next_run(found, context, now)),
            ("then", "\n".join(str(_iso(each)) for each in next_runs[1:]) or None),
        ]
    )


@command(group, "pause")
async def pause(context: CommandContext, name: Name) -> None:
    """Pause a schedule: it enqueues no job until it is resumed."""
    async with context.store() as store:
        _print_schedule(context, await _repository(context, store).pause(name), await store.clock.now())


@command(group, "resume")
async def resume(context: CommandContext, name: Name) -> None:
    """Resume a paused schedule, from now on."""
    async with context.store() as store:
        _print_schedule(context, await _repository(context, store).resume(name), await store.clock.now())


@command(group, "run")
async def run(context: CommandContext, name: Name) -> None:
    """Enqueue the job of a schedule now, in addition to its usual times."""
    async with context.store() as store:
        queue, job = await _repository(context, store).run_now(name)
    context.out.document({"schedule": name, "queue": queue, "id": job})
    context.out.line(job)


@command(group, "remove")
async def remove(context: CommandContext, name: Name) -> None:
    """Remove a schedule; the jobs that it enqueued stay.

    A schedule that an app declares is added again when a worker of the app starts.
    """
    async with context.store() as store:
        gone = await _repository(context, store).remove(name)
    context.out.document(_schedule_document(gone) | {"removed": True})
    context.out.line(f"removed schedule {name!r}: {gone.when}")


@command(group, "prune")
async def prune(
    context: CommandContext,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print the schedules that would be removed")
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove schedules of the app's queues that were declared in code and are not declared any more.

    If another app shares a queue and declares some of them, they are added again when its next worker starts.
    """
    if context.app is None:
        raise ConfigError(
            "no app is named: give --app MODULE:APP, such as shop.jobs:app, or set PENSTOCK_APP"
        )
    with context.app.using(context.make_store()) if context.settings.url else nullcontext():
        async with context.app:
            schedules = context.app.schedules
            found = await schedules.undeclared()
            if found and not dry_run:
                if not yes:
                    names = ", ".join(each.name for each in found[:NAMED])
                    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
                    context.out.confirm(f"Remove schedules {names}{more}?")
                found = await schedules.prune()
    context.out.documents(_schedule_document(each) | {"removed": not dry_run} for each in found)
    for each in found:
        context.out.line(f"{'would remove' if dry_run else 'removed'} schedule {each.name!r}: {each.when}")
    if not found:
        context.out.line("the app still declares all schedules that were declared in code")


@command(group, "add")
async def add(
    context: CommandContext,
    name: Name,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Name of the task, such as send", show_default=False)
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Arguments of the task, such as to=ada", show_default=False),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Arguments as a JSON object: text, @FILE, or - for standard input",
            show_default="the arguments KEY=VALUE",
        ),
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="Cron expression of five fields, such as '0 3 * * *'",
            show_default="an interval, with --every",
        ),
    ] = None,
    zone: Annotated[
        str, typer.Option(metavar="ZONE", help="Time zone of the cron expression, such as Europe/Berlin")
    ] = "UTC",
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Interval between two runs, such as 10m",
            show_default="a cron expression, with --cron",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Queue of the jobs, such as mail; required without --app",
            show_default="the queue of the task",
        ),
    ] = None,
    catch_up: Annotated[
        str, typer.Option(metavar="POLICY", help="Which missed runs to catch up on: none, last or all")
    ] = "last",
    catch_up_limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of runs to catch up on with --catch-up all")
    ] = 100,
    starts_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time of the first possible run, such as 2026-01-31T12:00",
            show_default="now",
        ),
    ] = None,
    ends_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time of the last possible run, such as 2026-12-31T12:00",
            show_default="the schedule does not end",
        ),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="PRIORITY",
            help="Priority of the jobs: 0 to 9, or low, normal, high or critical",
            show_default="that of the task, or normal",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Concurrency key of the jobs, such as customer-7")
    ] = None,
) -> None:
    """Add a schedule, or replace the schedule of that name."""
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
        call := _call(context, task, queue, arguments or [], payload, options),
        **without_none(
            catch_up=catch_up,
            catch_up_limit=catch_up_limit,
            starts_at=_time("--starts-at", starts_at),
            ends_at=_time("--ends-at", ends_at),
        ),
    )
    async with context.store(may_be_new=context.settings.url is None) as store:
        declared = [] if context.app is None else context.app.queues
        if call.queue not in declared and await store.queues.find_queue(context.ref(call.queue)) is None:
            raise unknown_queue(
                call.queue, [each.queue.name for each in await store.queues.list_queues(context.tenant)]
            )
        await _repository(context, store).put(call.queue, schedule)
        _print_schedule(context, await _repository(context, store).show(name), await store.clock.now())


def _repository(context: CommandContext, store: Store) -> ScheduleRepository:
    return ScheduleRepository(store, context.tenant)


def _call(
    context: CommandContext,
    task: str,
    queue: str | None,
    pairs: list[str],
    payload: str | None,
    options: JobOptions,
) -> Call[Any]:
    """The call of the schedule; with an app the task and its arguments are checked."""
    values = read_arguments(pairs, payload)
    if context.app is not None:
        known = context.app.registry.require(task)
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
    """The time in the text; without an offset it is local time."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise OptionError(option, text, "a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00Z") from None


def _print_schedule(context: CommandContext, found: ScheduleInfo, now: int) -> None:
    context.out.document(_schedule_document(found))
    context.out.line(f"schedule {found.name!r} runs {found.when}; next: {_next_run(found, context, now)}")


def _schedule_document(found: ScheduleInfo) -> dict[str, Any]:
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
    return f"all, at most {found.schedule.catch_up_limit}" if policy is CatchUp.ALL else policy.value


def _next_run(found: ScheduleInfo, context: CommandContext, now: int) -> str:
    if found.fault is not None:
        return "never: remove it"
    if found.paused:
        return "paused"
    if found.next_at is None:
        return "never again"
    return context.out.time(round(found.next_at.timestamp() * 1000), now)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
