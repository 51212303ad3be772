"""`penstock enqueue`: enqueue one job."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.cli.command_context import CommandContext, no_queue
from penstock.cli.jobs.task_arguments import encode_arguments, fit_arguments, read_arguments
from penstock.cli.output import utc, without_none
from penstock.client.client import Client
from penstock.client.retrying import RetryingCaller
from penstock.core.errors import JobNotFoundError, OptionError, PenstockError
from penstock.core.names import check_name
from penstock.core.states import State
from penstock.settings import seconds
from penstock.tasks.call import Call
from penstock.tasks.handle import JobHandle
from penstock.tasks.options import JobOptions


async def enqueue(
    context: CommandContext,
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
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Queue to enqueue into, such as mail; required without --app",
            show_default="the queue of the task",
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Delay before the job may run, such as 30s or 5m", show_default="no delay"
        ),
    ] = None,
    run_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time before which the job may not run, such as 2026-01-31T12:00",
            show_default="now",
        ),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="PRIORITY",
            help="Priority: 0 to 9, or low, normal, high or critical",
            show_default="that of the task, or normal",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Concurrency key of the job, such as customer-7")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Idempotency key, such as order-7: a second enqueue with the same key returns the same job",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if the idempotency key is known with another payload")
    ] = False,
    unique: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="Accept the job only if no other job of its kind is waiting (waiting) or not ended (live)",
            show_default="that of the task",
        ),
    ] = None,
    throttle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Accept at most one job of this kind per interval, such as 10m"),
    ] = None,
    debounce: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Run only the newest job of this kind, when no other has come for this long, such as 10s",
        ),
    ] = None,
    unique_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Name of the kind for --unique, --throttle and --debounce, such as report-7",
            show_default="the task with its arguments",
        ),
    ] = None,
    id: Annotated[  # noqa: A002 (the word for it)
        str | None,
        typer.Option(metavar="ID", help="Id of the job, such as order-7-mail", show_default="a generated id"),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Header of the job, such as traceparent=00-…-01; may be repeated",
            show_default="none",
        ),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Maximum number of attempts, such as 5",
            show_default="that of the task or queue",
        ),
    ] = None,
    backoff: Annotated[
        str | None,
        typer.Option(
            metavar="PRESET",
            help="Preset of the delays between attempts: default or spool",
            show_default="that of the task or queue",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Maximum duration of one attempt, such as 30s",
            show_default="that of the task or queue",
        ),
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long the job is kept after its end, such as 7d",
            show_default="that of the task or queue",
        ),
    ] = None,
    result_retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long the result is kept after the end of the job, such as 1h",
            show_default="as long as the job",
        ),
    ] = None,
    key_retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long the idempotency key is kept, such as 7d",
            show_default="that of the task or queue",
        ),
    ] = None,
    declare: Annotated[
        bool, typer.Option("--declare", help="Create the queue if there is none of that name")
    ] = False,
) -> None:
    """Enqueue one job and print its id.

    With --app the task and its arguments are checked; without an app any task name is accepted.
    """
    check_name("task", task)
    options = _options(
        delay=_seconds("delay", delay),
        run_at=_instant(run_at),
        priority=int(priority) if priority is not None and priority.isdecimal() else priority,
        key=key,
        idempotency_key=idempotency_key,
        strict=strict or None,
        unique=unique,
        throttle=_seconds("throttle", throttle),
        debounce=_seconds("debounce", debounce),
        unique_key=unique_key,
        id=id,
        headers=_headers(header),
        max_attempts=max_attempts,
        backoff=backoff,
        timeout=_seconds("timeout", timeout),
        retention=_seconds("retention", retention),
        result_retention=_seconds("result-retention", result_retention),
        key_retention=_seconds("key-retention", key_retention),
    )
    values = read_arguments(arguments or [], payload)
    if context.app is not None:
        app = context.app
        known = app.registry.require(task)
        call = _checked_call(
            task, queue or known.queue, fit_arguments(known, values), options.over(known.defaults)
        )
        if declare:
            app.queue(call.queue)
        with app.using(context.make_lasting_store()):
            async with app:
                (sent,) = await known.enqueue_many([call], on_error="return")
                if isinstance(sent, PenstockError):
                    raise sent
                await _print_job(context, sent, options)
        return
    if queue is None:
        raise no_queue()
    call = _checked_call(task, queue, encode_arguments(values), options)
    async with context.store(may_be_new=declare) as store:
        client = Client(
            store, tenant=context.tenant, declared=None if declare else (), retrying=RetryingCaller(1)
        )
        await _print_job(context, await client.send(call), options)


def _checked_call(task: str, queue: str, payload: bytes, options: JobOptions) -> Call[Any]:
    with _errors_name_flags():
        checked = options.checked()
    return Call(task=task, queue=queue, payload=payload, options=checked, decode=lambda _: None)


async def _print_job(context: CommandContext, sent: JobHandle[Any], options: JobOptions) -> None:
    state: State | None = None
    # A job that was pruned has no state; only its idempotency key is left.
    with suppress(JobNotFoundError):
        state = await sent.status()
    context.out.document(
        without_none(
            id=sent.id,
            queue=sent.queue,
            created=sent.created,
            state=state,
            same_payload=sent.same_payload,
            replaced=sent.replaced or None,
            run_at=utc(options.run_at),
        )
    )
    if sent.created:
        context.out.line(sent.id)
    elif sent.replaced:
        context.out.line(f"{sent.id} (was waiting: it has the new arguments now, and its delay starts again)")
    else:
        other = "" if sent.same_payload else ", with another payload"
        context.out.line(f"{sent.id} (exists already: {state or 'ended and pruned'}{other})")


def _options(**given: Any) -> JobOptions:
    with _errors_name_flags():
        return JobOptions.of(without_none(**given))  # type: ignore[arg-type]


@contextmanager
def _errors_name_flags() -> Iterator[None]:
    """In errors, name options as they are written on the command line."""
    try:
        yield
    except OptionError as error:
        raise OptionError(f"--{error.field.replace('_', '-')}", error.found, error.wanted) from None


def _headers(given: list[str] | None) -> dict[str, str] | None:
    headers = {}
    for each in given or ():
        name, sign, value = each.partition("=")
        if not sign or name in headers:
            raise OptionError("--header", each, "NAME=VALUE, each name once")
        headers[name] = value
    return headers or None


def _seconds(option: str, text: str | None) -> float | None:
    return None if text is None else seconds(f"--{option}", text)


def _instant(text: str | None) -> datetime | None:
    """The time in the text; without an offset it is local time."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise OptionError(
            "--run-at", text, "a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00Z"
        ) from None
