"""`penstock enqueue`: one job from the command line."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.cli.arguments import encode_arguments, fit_arguments, read_arguments
from penstock.cli.desk import Desk, no_queue
from penstock.cli.output import utc, without_none
from penstock.client.client import Client
from penstock.client.persist import Persistence
from penstock.core.errors import JobNotFoundError, OptionError, PenstockError
from penstock.core.names import check_name
from penstock.core.states import State
from penstock.settings import seconds
from penstock.tasks.call import Call
from penstock.tasks.handle import JobHandle
from penstock.tasks.options import JobOptions


async def enqueue(
    desk: Desk,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Its arguments", show_default=False)
    ] = None,
    payload: Annotated[
        str | None, typer.Option(metavar="JSON", help="Arguments as a JSON object, @file, or - for stdin")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help="The queue; with an app, the task's own if not given")
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="Not before so long, such as 10m")] = None,
    run_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before, such as 2026-01-31T12:00")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="0 to 9, or low, normal, high, critical")] = None,
    key: Annotated[str | None, typer.Option(help="The concurrency key")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key again gives the same job")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a known key with another payload")] = False,
    unique: Annotated[
        str | None, typer.Option(metavar="RULE", help="One of its kind: while waiting, or while live")
    ] = None,
    throttle: Annotated[str | None, typer.Option(metavar="TIME", help="One of its kind in so long")] = None,
    debounce: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Run the newest of its kind so long after it"),
    ] = None,
    unique_key: Annotated[str | None, typer.Option(help="Which kind; else its arguments decide")] = None,
    id: Annotated[str | None, typer.Option(help="An id of your own choice")] = None,  # noqa: A002
    max_attempts: Annotated[int | None, typer.Option(help="Executions at most")] = None,
    backoff: Annotated[str | None, typer.Option(help="A preset: default or spool")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="The longest execution")] = None,
    retention: Annotated[str | None, typer.Option(metavar="TIME", help="Kept so long after its end")] = None,
    result_retention: Annotated[
        str | None, typer.Option(metavar="TIME", help="Its result is kept so long after its end")
    ] = None,
    key_retention: Annotated[str | None, typer.Option(metavar="TIME", help="Its key is held so long")] = None,
    declare: Annotated[bool, typer.Option("--declare", help="Make the queue if it is new")] = False,
) -> None:
    """Enqueue one job. With --app the task and its arguments are checked; without, any task goes."""
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
        max_attempts=max_attempts,
        backoff=backoff,
        timeout=_seconds("timeout", timeout),
        retention=_seconds("retention", retention),
        result_retention=_seconds("result-retention", result_retention),
        key_retention=_seconds("key-retention", key_retention),
    )
    values = read_arguments(arguments or [], payload)
    if desk.app is not None:
        app = desk.app
        known = app.registry.require(task)
        call = _call(task, queue or known.queue, fit_arguments(known, values), options.over(known.defaults))
        if declare:
            app.queue(call.queue)
        with app.using(desk.make_lasting_store()):
            async with app:
                (sent,) = await known.enqueue_many([call], on_error="return")
                if isinstance(sent, PenstockError):
                    raise sent
                await _tell(desk, sent, options)
        return
    if queue is None:
        raise no_queue()
    call = _call(task, queue, encode_arguments(values), options)
    async with desk.store(may_be_new=declare) as store:
        client = Client(
            store, tenant=desk.tenant, declared=None if declare else (), persistence=Persistence(1)
        )
        await _tell(desk, await client.send(call), options)


def _call(task: str, queue: str, payload: bytes, options: JobOptions) -> Call[Any]:
    with _as_flags():
        checked = options.checked()
    return Call(task=task, queue=queue, payload=payload, options=checked, decode=lambda _: None)


async def _tell(desk: Desk, sent: JobHandle[Any], options: JobOptions) -> None:
    state: State | None = None
    # Of a job that was pruned only its key is left.
    with suppress(JobNotFoundError):
        state = await sent.status()
    desk.out.document(
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
        desk.out.line(sent.id)
    elif sent.replaced:
        desk.out.line(f"{sent.id} (was waiting: it has the new arguments now, and its wait begins again)")
    else:
        other = "" if sent.same_payload else ", with another payload"
        desk.out.line(f"{sent.id} (already there: {state or 'ended and pruned'}{other})")


def _options(**given: Any) -> JobOptions:
    with _as_flags():
        return JobOptions.of(without_none(**given))  # type: ignore[arg-type]


@contextmanager
def _as_flags() -> Iterator[None]:
    """Name options as they are written on the command line."""
    try:
        yield
    except OptionError as error:
        raise OptionError(f"--{error.field.replace('_', '-')}", error.found, error.wanted) from None


def _seconds(option: str, text: str | None) -> float | None:
    return None if text is None else seconds(f"--{option}", text)


def _instant(text: str | None) -> datetime | None:
    """A time without an offset is one of the clock on the user's wall."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise OptionError(
            "--run-at", text, "a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00Z"
        ) from None
