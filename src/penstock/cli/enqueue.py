"""`penstock enqueue`: one job from the command line."""

import secrets
import time
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.cli.arguments import encode_arguments, fit_arguments, read_arguments
from penstock.cli.desk import Desk
from penstock.cli.output import utc, without_none
from penstock.cli.reference import load_app
from penstock.core.errors import (
    DuplicateJobError,
    IdempotencyConflictError,
    OptionError,
    QueueFullError,
)
from penstock.core.ids import IdMaker
from penstock.core.job import NewJob
from penstock.core.names import check_name
from penstock.core.outcomes import Refusal, Refused
from penstock.settings import seconds
from penstock.stores.protocol import Store
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
    id: Annotated[str | None, typer.Option(help="An id of your own choice")] = None,  # noqa: A002
    max_attempts: Annotated[int | None, typer.Option(help="Executions at most")] = None,
    backoff: Annotated[str | None, typer.Option(help="A preset: default or spool")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="The longest execution")] = None,
    retention: Annotated[str | None, typer.Option(metavar="TIME", help="Kept so long after its end")] = None,
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
        id=id,
        max_attempts=max_attempts,
        backoff=backoff,
        timeout=_seconds("timeout", timeout),
        retention=_seconds("retention", retention),
        key_retention=_seconds("key-retention", key_retention),
    )
    values = read_arguments(arguments or [], payload)
    if desk.settings.app is not None:
        known = load_app(desk.settings.app).registry.require(task)
        body, queue = fit_arguments(known, values), queue or known.queue
        options = options.over(known.defaults)
        declare = declare or queue == known.queue
    else:
        body = encode_arguments(values)
    if queue is None:
        raise OptionError("--queue", None, "the queue's name, or --app with an app that knows the task")
    async with desk.store() as store:
        if not declare:
            await desk.queue(store, queue)
        await _send(desk, store, queue, task, body, options)


async def _send(desk: Desk, store: Store, queue: str, task: str, payload: bytes, options: JobOptions) -> None:
    ref = desk.ref(queue)
    number = (await store.open_queue(ref)).number
    made = IdMaker(lambda: time.time_ns() // 1_000_000, secrets.randbits).make(number)
    new = NewJob(
        id=options.id or made,
        nonce=secrets.token_hex(8),
        task=task,
        payload=payload,
        priority=options.tier,
        delay_ms=options.delay_ms or 0,
        run_at=options.run_at,
        idempotency_key=options.idempotency_key,
        key=options.key,
        options=options.policy,
    )
    (outcome,) = await store.enqueue(ref, [new])
    if isinstance(outcome, Refused):
        if outcome.why is Refusal.FULL:
            raise QueueFullError(f"queue {queue!r} is full; nothing was enqueued")
        raise DuplicateJobError(
            f"the id {new.id!r} is taken in queue {queue!r} by another job, {outcome.state}"
        )
    if options.strict and not outcome.same_payload:
        raise IdempotencyConflictError(
            f"key {options.idempotency_key!r} is held by job {outcome.id} with another payload"
        )
    desk.out.document(
        without_none(
            id=outcome.id,
            queue=queue,
            created=outcome.created,
            state=outcome.state,
            same_payload=outcome.same_payload,
            run_at=utc(options.run_at),
        )
    )
    if outcome.created:
        desk.out.line(outcome.id)
    else:
        other = "" if outcome.same_payload else ", with another payload"
        desk.out.line(f"{outcome.id} (already there: {outcome.state or 'ended and pruned'}{other})")


def _options(**given: Any) -> JobOptions:
    try:
        return JobOptions.of(without_none(**given))  # type: ignore[arg-type]
    except OptionError as error:
        raise OptionError(f"--{error.field.replace('_', '-')}", error.found, error.wanted) from None


def _seconds(option: str, text: str | None) -> float | None:
    return None if text is None else seconds(f"--{option}", text)


def _instant(text: str | None) -> datetime | None:
    """A time without an offset is one of the clock on the user's wall."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            "--run-at", text, "a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00Z"
        ) from None
    return at.astimezone()
