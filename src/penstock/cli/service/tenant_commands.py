"""`penstock tenants`: the tenants of the service, their quotas, their usage, and the log of changes."""

from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.options import setting
from penstock.cli.output import utc, without_none
from penstock.cli.registration import command, command_group
from penstock.cli.service.service_access import operator_name
from penstock.core.errors import OptionError
from penstock.core.names import check_name
from penstock.core.states import WAITING
from penstock.service.tenants.audit import Audit
from penstock.service.tenants.quota_repository import BUILT_IN, FIELDS, Quota, QuotaRepository, quota_of
from penstock.service.tenants.usage import Usage
from penstock.stores.values import EVERYONE

group = command_group("List tenants, show their usage, set their quotas.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the tenant, such as acme", show_default=False)
]


def _quota_option(text: str) -> Any:
    return typer.Option(metavar="N", help=text, show_default="the stored limit")


@command(group, "list")
async def list_tenants(context: CommandContext) -> None:
    """List the tenants that have queues or quotas."""
    async with context.store() as store:
        quotas = await QuotaRepository(store.key_value).all()
        names = sorted({*await store.queues.list_tenants(), *quotas})
        queues = {name: await store.queues.list_queues(name) for name in names}
    rows = [(name, len(queues[name]), _quota_text(quotas.get(name, Quota()))) for name in names]
    context.out.documents(
        without_none(tenant=name, queues=many, quota=_quota_document(quotas.get(name)))
        for name, many, _ in rows
    )
    context.out.table(["tenant", "queues", "quota of its own"], rows, right=frozenset({"queues"}))


@command(group, "show")
async def show(
    context: CommandContext,
    name: Name,
    days: Annotated[
        int, typer.Option(metavar="N", help="Number of days of usage to print", min=1, max=400)
    ] = 7,
) -> None:
    """Show the quota of a tenant, its waiting jobs, and its usage per day."""
    check_name("NAME", name)
    async with context.store() as store:
        quota = await QuotaRepository(store.key_value).of(name)
        used = await Usage(store).of(name, days)
        infos = await store.queues.list_queues(name)
        counts = [await store.reads.counts(info.queue) for info in infos]
        schedules = len(await store.schedules.list_schedules(name))
    waiting = sum(each[state] for each in counts for state in WAITING)
    context.out.document(
        {
            "tenant": name,
            "queues": len(infos),
            "waiting": waiting,
            "schedules": schedules,
            "quota": _quota_document(quota),
            "usage": used,
        }
    )
    context.out.fields(
        [
            ("tenant", name),
            ("queues", f"{len(infos)}, with {waiting} waiting jobs"),
            ("schedules", schedules),
            *((field.replace("_", " "), _limit_text(quota, field)) for field in FIELDS),
        ]
    )
    if used:
        context.out.line()
        context.out.table(
            ["day", "jobs", "refused"],
            ((each.day, each.jobs, each.refused) for each in used),
            right=frozenset({"jobs", "refused"}),
        )


@command(group, "quota")
async def quota(
    context: CommandContext,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of the tenant; none with --default", show_default=False),
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Show or set the quota of tenants without their own")
    ] = False,
    jobs_per_second: Annotated[
        float | None,
        _quota_option("Maximum rate of enqueued jobs over all queues, in jobs per second, such as 50"),
    ] = None,
    queue_length: Annotated[
        int | None, _quota_option("Maximum number of live jobs in one queue, such as 100000")
    ] = None,
    payload_bytes: Annotated[
        int | None, _quota_option("Maximum size of a payload in bytes, such as 65536")
    ] = None,
    schedules: Annotated[int | None, _quota_option("Maximum number of schedules, such as 100")] = None,
    queues: Annotated[int | None, _quota_option("Maximum number of queues, such as 20")] = None,
    streams: Annotated[
        int | None,
        _quota_option("Maximum number of concurrent streams and long polls per process, such as 50"),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="First remove all limits of the quota")] = False,
) -> None:
    """Show the quota of a tenant, or set limits of it; limits without an option stay as they are."""
    if (name is None) != default:
        raise OptionError("NAME", "none" if name is None else name, "a tenant, or --default without one")
    given = {
        "jobs_per_second": jobs_per_second,
        "queue_length": queue_length,
        "payload_bytes": payload_bytes,
        "schedules": schedules,
        "queues": queues,
        "streams": streams,
    }
    named = {field: value for field, value in given.items() if value is not None}
    wanted = quota_of(**named)
    async with context.store(may_be_new=bool(named)) as store:
        book = QuotaRepository(store.key_value)
        before = (await book.default() if name is None else await book.own(name)) or Quota()
        after = wanted.over(Quota() if clear else before)
        if named:
            await book.set(name, after)
        elif clear:
            await book.unset(name)
        if named or clear:
            on = "all others" if name is None else name
            await Audit(store).note(who=operator_name(), what="quota.set", on=on, detail=_quota_text(after))
    context.out.document(without_none(tenant=name, quota=_quota_document(after)))
    context.out.fields((field.replace("_", " "), _limit_text(after, field)) for field in FIELDS)


@command(group, "audit", prefix="list")
async def audit(
    context: CommandContext,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the tenant, such as acme",
            show_default="changes of the service itself",
        ),
    ] = None,
    limit: Annotated[
        str | None, setting("list.limit", "Maximum number of rows, such as 100", metavar="N")
    ] = None,
) -> None:
    """List what administrators changed, the newest change first."""
    async with context.store() as store:
        entries = await Audit(store).entries(EVERYONE if name is None else name, context.settings.list.limit)
        now = await store.clock.now()
    context.out.documents(msgspec.to_builtins(each) | {"at": utc(each.at)} for each in entries)
    context.out.table(
        ["at", "who", "what", "on", "detail"],
        ((context.out.time(each.at, now), each.who, each.what, each.on, each.detail) for each in entries),
    )


def _limit_text(quota: Quota, field: str) -> str:
    value = getattr(quota, field)
    built_in = getattr(BUILT_IN, field)
    if value is None and built_in is not None:
        return f"{built_in} (built in)"
    if value is None and field == "streams":
        return "the setting serve.streams_per_tenant of the service"
    return "no limit" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _quota_text(quota: Quota) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in msgspec.to_builtins(quota).items())


def _quota_document(quota: Quota | None) -> dict[str, Any] | None:
    return None if quota is None else msgspec.to_builtins(quota)
