"""`penstock queues declare|limits|keys|drain`: the limits of queues and of their keys."""

from typing import Annotated, Any

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.output import span, utc, without_none
from penstock.cli.queues.queue_commands import Name, group
from penstock.cli.queues.queue_drain import wait_until_empty
from penstock.cli.queues.rate_text import rate_of
from penstock.cli.registration import command
from penstock.core.errors import OptionError
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.core.names import check_key
from penstock.core.states import WAITING, State
from penstock.explain.formatting import rate_hold_text
from penstock.explain.job_facts import MOST_KEYS
from penstock.settings import seconds
from penstock.stores.protocol import Store
from penstock.stores.values import KeyInfo, QueueInfo

__all__ = ["declaration_document", "group"]


@command(group, "declare")
async def declare(
    context: CommandContext,
    queue: Name,
    mode: Annotated[
        Mode, typer.Option(help="How jobs share the workers: global, keyed or dynamic")
    ] = Mode.GLOBAL,
    key_limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of running jobs per key")] = 1,
    max_active: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Maximum number of running jobs of the queue, such as 50",
            show_default="no maximum",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Maximum number of waiting jobs, such as 10000", show_default="no maximum"
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Maximum rate at which jobs start, such as 5/s or 100/m",
            show_default="no maximum",
        ),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Maximum number of jobs that start at once within --rate", show_default="1"
        ),
    ] = None,
    key_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Maximum rate at which jobs of one key start, such as 1/10s",
            show_default="no maximum",
        ),
    ] = None,
    key_burst: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Maximum number of jobs of one key that start at once within --key-rate",
            show_default="1",
        ),
    ] = None,
    version: Annotated[
        int,
        typer.Option(
            metavar="N", help="Version of the declaration; a change needs a higher one than the stored"
        ),
    ] = 1,
) -> None:
    """Configure a queue's limits; creates the queue if needed.

    The stored version with the same content changes nothing; with other content it is refused.
    """
    for given, rate_text, option in ((burst, rate, "--burst"), (key_burst, key_rate, "--key-burst")):
        if given is not None and rate_text is None:
            raise OptionError(option, given, f"{option.replace('burst', 'rate')} with it")
    wanted = Declaration(
        version=version,
        mode=mode,
        key_limit=key_limit,
        max_active=max_active,
        max_length=max_length,
        rate=rate_of("--rate", rate, burst),
        key_rate=rate_of("--key-rate", key_rate, key_burst),
    )
    async with context.store(may_be_new=True) as store:
        info = await store.queues.declare(context.ref(queue), wanted)
        if info.declaration != wanted:
            context.out.note(f"version {version} is older than the stored version, which stays in force")
        await _print_limits(context, store, info)


@command(group, "limits")
async def limits(context: CommandContext, queue: Name) -> None:
    """Show the limits of a queue, and how many jobs count towards them."""
    async with context.store() as store:
        await _print_limits(context, store, await context.queue(store, queue))


@command(group, "keys")
async def keys(
    context: CommandContext,
    queue: Name,
    set_: Annotated[
        str | None,
        typer.Option(
            "--set", metavar="KEY", help="Key to set a rule for, such as customer-7, with --limit or --weight"
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Maximum number of running jobs of the key, in dynamic queues",
            show_default="the key limit of the queue",
        ),
    ] = None,
    weight: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Turns of the key for each turn of a key without a rule", show_default="1"
        ),
    ] = None,
    unset: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key whose rule is removed, such as customer-7")
    ] = None,
    first: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of keys to list", min=1, max=MOST_KEYS)
    ] = 1_000,
) -> None:
    """List the keys of a queue that have jobs or rules, or change the rule of one key."""
    if set_ is not None and unset is not None:
        raise OptionError("--unset", unset, "either --set or --unset")
    if set_ is None and (limit is not None or weight is not None):
        raise OptionError(
            "--limit" if limit is not None else "--weight", limit or weight, "--set KEY with it"
        )
    if set_ is not None and limit is None and weight is None:
        raise OptionError("--set", set_, "--limit or --weight with it")
    async with context.store() as store:
        info = await context.queue(store, queue)
        if not info.mode.has_keys:
            raise OptionError("QUEUE", queue, f"a keyed or dynamic queue; this one is {info.mode}")
        if set_ is not None:
            await store.queues.set_key_rule(info.queue, check_key("--set", set_), KeyRule(limit, weight))
        elif unset is not None:
            await store.queues.set_key_rule(info.queue, check_key("--unset", unset), None)
        found = await store.queues.list_keys(info.queue, first)
        now = await store.clock.now()
    context.out.documents({"queue": queue} | _key_document(each, now) for each in found)
    context.out.table(
        ["key", "waiting", "active", "limit", "weight", "held until"],
        (
            (each.key, each.waiting, each.active, each.limit, each.weight, rate_hold_text(each, now) or "")
            for each in found
        ),
        right=frozenset({"waiting", "active", "limit", "weight"}),
    )
    if len(found) == first:
        context.out.line(f"the first {first} keys by name; --first lists more")


@command(group, "drain")
async def drain(
    context: CommandContext,
    queue: Name,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time after which to give up with exit code 1, such as 10m",
            show_default="wait without an end",
        ),
    ] = None,
) -> None:
    """Wait until a queue has no live job left; workers have to run elsewhere."""
    limit = None if timeout is None else seconds("--timeout", timeout)
    async with context.store() as store:
        info = await context.queue(store, queue)
        left = await wait_until_empty(store, info, limit, context.out.note)
    context.out.document({"queue": queue, "drained": not left, "left": left})
    if left:
        many = ", ".join(f"{count} {state}" for state, count in left.items())
        context.out.line(f"queue {queue!r} is not empty after {timeout}: {many}")
        raise typer.Exit(1)
    context.out.line(f"queue {queue!r} has no live job left")


def declaration_document(declaration: Declaration) -> dict[str, Any]:
    """A declaration as JSON, without the limits that are not set."""
    has_keys = declaration.mode.has_keys
    return without_none(
        version=declaration.version,
        mode=declaration.mode,
        key_limit=declaration.key_limit if has_keys else None,
        max_active=declaration.max_active,
        max_length=declaration.max_length,
        rate=declaration.rate,
        key_rate=declaration.key_rate,
    )


async def _print_limits(context: CommandContext, store: Store, info: QueueInfo) -> None:
    counts, now = await store.reads.counts(info.queue), await store.clock.now()
    held_until = info.held_until(now)
    active, waiting = counts[State.ACTIVE], sum(counts[state] for state in WAITING)
    declared = info.declaration
    document = without_none(
        queue=info.queue.name,
        active=active,
        waiting=waiting,
        declaration=None if declared is None else declaration_document(declared),
        held_until=utc(held_until),
    )
    context.out.document(document)
    if declared is None:
        context.out.line(f"queue {info.queue.name!r} is global and without limits: it was never declared")
        return
    rate, key_rate = declared.rate, declared.key_rate
    used_up = "" if held_until is None else f" (used up; the next job may start in {span(held_until - now)})"
    context.out.fields(
        [
            ("queue", str(info.queue)),
            ("version", declared.version),
            ("mode", declared.mode),
            ("key limit", declared.key_limit if declared.mode.has_keys else None),
            ("max active", _limit_text(active, declared.max_active, "running")),
            ("max length", _limit_text(waiting, declared.max_length, "waiting")),
            ("rate", "no limit" if rate is None else f"{rate}{used_up}"),
            ("key rate", None if key_rate is None else str(key_rate)),
        ]
    )


def _limit_text(many: int, limit: int | None, what: str) -> str:
    return f"no limit ({many} {what})" if limit is None else f"{limit} ({many} {what})"


def _key_document(key: KeyInfo, now: int) -> dict[str, Any]:
    held = key.held_until if key.held_until is not None and key.held_until > now else None
    return without_none(
        key=key.key,
        waiting=key.waiting,
        active=key.active,
        limit=key.limit,
        weight=key.weight,
        held_until=utc(held),
    )
