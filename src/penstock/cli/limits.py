"""`penstock queues declare|limits|keys|drain`: how many at once, how fast, and whose turn."""

from typing import Annotated, Any

import typer

from penstock.cli.desk import Desk, command
from penstock.cli.drain import wait_until_empty
from penstock.cli.output import span, utc, without_none
from penstock.cli.queues import Name, group
from penstock.cli.rates import rate_of
from penstock.core.errors import OptionError
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.core.names import check_key
from penstock.core.states import WAITING, State
from penstock.explain.facts import MOST_KEYS
from penstock.explain.words import held_text
from penstock.settings import seconds
from penstock.stores.protocol import Store
from penstock.stores.values import KeyInfo, QueueInfo

__all__ = ["declaration_document", "group"]


@command(group, "declare")
async def declare(
    desk: Desk,
    queue: Name,
    mode: Annotated[Mode, typer.Option(help="How jobs share the workers")] = Mode.GLOBAL,
    key_limit: Annotated[int, typer.Option(metavar="N", help="Of each key so many at once")] = 1,
    max_active: Annotated[int | None, typer.Option(metavar="N", help="So many at once in all")] = None,
    max_length: Annotated[int | None, typer.Option(metavar="N", help="So many may wait")] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Starts in a time, such as 5/s")] = None,
    burst: Annotated[int | None, typer.Option(metavar="N", help="Starts at once, if the rate allows")] = None,
    key_rate: Annotated[str | None, typer.Option(metavar="RATE", help="The same for each key")] = None,
    key_burst: Annotated[int | None, typer.Option(metavar="N", help="The same for each key")] = None,
    version: Annotated[int, typer.Option(metavar="N", help="Higher than the stored one to change it")] = 1,
) -> None:
    """Say how a queue shares its workers; a queue that is new is made.

    The same version with the same content changes nothing, and with other content is refused.
    """
    for given, beside, option in ((burst, rate, "--burst"), (key_burst, key_rate, "--key-burst")):
        if given is not None and beside is None:
            raise OptionError(option, given, f"{option.replace('burst', 'rate')} beside it")
    wanted = Declaration(
        version=version,
        mode=mode,
        key_limit=key_limit,
        max_active=max_active,
        max_length=max_length,
        rate=rate_of("--rate", rate, burst),
        key_rate=rate_of("--key-rate", key_rate, key_burst),
    )
    async with desk.store(may_be_new=True) as store:
        info = await store.declare(desk.ref(queue), wanted)
        if info.declaration != wanted:
            desk.out.note(f"version {version} is older than the stored one, which stays")
        await _tell(desk, store, info)


@command(group, "limits")
async def limits(desk: Desk, queue: Name) -> None:
    """Show what is declared of a queue, and how near it is to its limits."""
    async with desk.store() as store:
        await _tell(desk, store, await desk.queue(store, queue))


@command(group, "keys")
async def keys(
    desk: Desk,
    queue: Name,
    set_: Annotated[str | None, typer.Option("--set", metavar="KEY", help="Give this key a rule")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Its own limit, in dynamic queues")] = None,
    weight: Annotated[int | None, typer.Option(metavar="N", help="Its turns for one of others")] = None,
    unset: Annotated[str | None, typer.Option(metavar="KEY", help="Take its rule back")] = None,
    first: Annotated[
        int, typer.Option(metavar="N", help="How many keys at most", min=1, max=MOST_KEYS)
    ] = 1_000,
) -> None:
    """Show the keys of a queue that have jobs or rules, or change the rule of one."""
    if set_ is not None and unset is not None:
        raise OptionError("--unset", unset, "either --set or --unset")
    if set_ is None and (limit is not None or weight is not None):
        raise OptionError(
            "--limit" if limit is not None else "--weight", limit or weight, "--set KEY beside it"
        )
    if set_ is not None and limit is None and weight is None:
        raise OptionError("--set", set_, "--limit or --weight beside it")
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        if not info.mode.has_keys:
            raise OptionError("QUEUE", queue, f"a keyed or dynamic queue; this one is {info.mode}")
        if set_ is not None:
            await store.set_key_rule(info.queue, check_key("--set", set_), KeyRule(limit, weight))
        elif unset is not None:
            await store.set_key_rule(info.queue, check_key("--unset", unset), None)
        found = await store.keys(info.queue, first)
        now = await store.now()
    desk.out.document({"queue": queue, "keys": [_key_document(each, now) for each in found]})
    desk.out.table(
        ["key", "waiting", "active", "limit", "weight", "held until"],
        (
            (each.key, each.waiting, each.active, each.limit, each.weight, held_text(each, now) or "")
            for each in found
        ),
        right=frozenset({"waiting", "active", "limit", "weight"}),
    )
    if len(found) == first:
        desk.out.line(f"the first {first} by name; more with --first")


@command(group, "drain")
async def drain(
    desk: Desk,
    queue: Name,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after, such as 10m; exit code 1")
    ] = None,
) -> None:
    """Wait until a queue has no live job left. It starts nothing: workers do the work."""
    limit = None if timeout is None else seconds("--timeout", timeout)
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        left = await wait_until_empty(store, info, limit, desk.out.note)
    desk.out.document({"queue": queue, "drained": not left, "left": left})
    if left:
        many = ", ".join(f"{count} {state}" for state, count in left.items())
        desk.out.line(f"queue {queue!r} is not empty after {timeout}: {many}")
        raise typer.Exit(1)
    desk.out.line(f"queue {queue!r} has no live job left")


def declaration_document(declaration: Declaration) -> dict[str, Any]:
    """A declaration for programs; what is not limited is absent."""
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


async def _tell(desk: Desk, store: Store, info: QueueInfo) -> None:
    counts, now = await store.counts(info.queue), await store.now()
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
    desk.out.document(document)
    if declared is None:
        desk.out.line(f"queue {info.queue.name!r} is global, and nothing is limited: it was never declared")
        return
    rate, key_rate = declared.rate, declared.key_rate
    used_up = "" if held_until is None else f" (used up; the next may start in {span(held_until - now)})"
    desk.out.fields(
        [
            ("queue", str(info.queue)),
            ("version", declared.version),
            ("mode", declared.mode),
            ("key limit", declared.key_limit if declared.mode.has_keys else None),
            ("max active", _of(active, declared.max_active, "running")),
            ("max length", _of(waiting, declared.max_length, "waiting")),
            ("rate", "no limit" if rate is None else f"{rate}{used_up}"),
            ("key rate", None if key_rate is None else str(key_rate)),
        ]
    )


def _of(many: int, limit: int | None, what: str) -> str:
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
