"""`penstock tenants`: who uses the service, how much they may, how much they did, and who decided so."""

from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.desk import Desk, command
from penstock.cli.output import local, utc, without_none
from penstock.cli.service import who
from penstock.core.errors import OptionError
from penstock.core.names import check_name
from penstock.core.states import WAITING
from penstock.service.tenants.audit import Audit
from penstock.service.tenants.book import BUILT_IN, FIELDS, Quota, QuotaBook, quota_of
from penstock.service.tenants.usage import Usage
from penstock.stores.values import EVERYONE

group = typer.Typer(help="See tenants, their quotas and what they used.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant", show_default=False)]


def _most(text: str) -> Any:
    return typer.Option(metavar="N", help=text, show_default=False)


@command(group, "list")
async def list_tenants(desk: Desk) -> None:
    """List the tenants that have queues or quotas."""
    async with desk.store() as store:
        quotas = await QuotaBook(store).all()
        names = sorted({*await store.tenants(), *quotas})
        queues = {name: await store.queues(name) for name in names}
    rows = [(name, len(queues[name]), _text(quotas.get(name, Quota()))) for name in names]
    desk.out.document(
        {
            "tenants": [
                without_none(tenant=name, queues=many, quota=_document(quotas.get(name)))
                for name, many, _ in rows
            ]
        }
    )
    desk.out.table(["tenant", "queues", "quota of its own"], rows, right=frozenset({"queues"}))


@command(group, "show")
async def show(
    desk: Desk,
    name: Name,
    days: Annotated[int, typer.Option(min=1, max=400, help="Days of usage to show")] = 7,
) -> None:
    """Show what a tenant may use, what waits in its queues, and what it used day by day."""
    check_name("NAME", name)
    async with desk.store() as store:
        quota = await QuotaBook(store).of(name)
        used = await Usage(store).of(name, days)
        infos = await store.queues(name)
        counts = [await store.counts(info.queue) for info in infos]
        schedules = len(await store.schedules(name))
    waiting = sum(each[state] for each in counts for state in WAITING)
    desk.out.document(
        {
            "tenant": name,
            "queues": len(infos),
            "waiting": waiting,
            "schedules": schedules,
            "quota": _document(quota),
            "usage": used,
        }
    )
    desk.out.fields(
        [
            ("tenant", name),
            ("queues", f"{len(infos)}, with {waiting} waiting jobs"),
            ("schedules", schedules),
            *((field.replace("_", " "), _bound(quota, field)) for field in FIELDS),
        ]
    )
    if used:
        desk.out.line()
        desk.out.table(
            ["day", "jobs", "refused"],
            ((each.day, each.jobs, each.refused) for each in used),
            right=frozenset({"jobs", "refused"}),
        )


@command(group, "quota")
async def quota(
    desk: Desk,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The tenant; or use --default", show_default=False)
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="For tenants without a quota of their own")
    ] = False,
    jobs_per_second: Annotated[float | None, _most("Jobs enqueued, over all queues")] = None,
    queue_length: Annotated[int | None, _most("Jobs that wait or run in one queue")] = None,
    payload_bytes: Annotated[int | None, _most("The largest payload")] = None,
    schedules: Annotated[int | None, _most("Schedules")] = None,
    queues: Annotated[int | None, _most("Queues")] = None,
    streams: Annotated[int | None, _most("Streams and long polls at a time, per process")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take all of it back first")] = False,
) -> None:
    """Set what a tenant may use, or show it. What is not named stays as it was."""
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
    async with desk.store(may_be_new=bool(named)) as store:
        book = QuotaBook(store)
        before = (await book.default() if name is None else await book.own(name)) or Quota()
        after = wanted.over(Quota() if clear else before)
        if named:
            await book.set(name, after)
        elif clear:
            await book.unset(name)
        if named or clear:
            on = "all others" if name is None else name
            await Audit(store).note(who=who(), what="quota.set", on=on, detail=_text(after))
    desk.out.document(without_none(tenant=name, quota=_document(after)))
    desk.out.fields((field.replace("_", " "), _bound(after, field)) for field in FIELDS)


@command(group, "audit", prefix="list")
async def audit(
    desk: Desk,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A tenant", show_default="what concerns the service itself"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="How many at most", show_default=False)
    ] = None,
) -> None:
    """Show who did what as an administrator, the newest first."""
    async with desk.store() as store:
        acts = await Audit(store).acts(EVERYONE if name is None else name, desk.settings.list.limit)
    desk.out.document({"acts": [msgspec.to_builtins(each) | {"at": utc(each.at)} for each in acts]})
    desk.out.table(
        ["at", "who", "what", "on", "detail"],
        ((local(each.at), each.who, each.what, each.on, each.detail) for each in acts),
    )


def _bound(quota: Quota, field: str) -> str:
    value = getattr(quota, field)
    built_in = getattr(BUILT_IN, field)
    if value is None and built_in is not None:
        return f"{built_in} (built in)"
    if value is None and field == "streams":
        return "as the service is set (serve.streams_per_tenant)"
    return "no bound" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _text(quota: Quota) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in msgspec.to_builtins(quota).items())


def _document(quota: Quota | None) -> dict[str, Any] | None:
    return None if quota is None else msgspec.to_builtins(quota)
