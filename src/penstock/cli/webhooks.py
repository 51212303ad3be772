"""`penstock webhooks`: where word of endings goes; add, rotate, pause; what was delivered, and once more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from penstock.cli.desk import Desk, command, setting
from penstock.cli.output import local, utc, without_none
from penstock.core.errors import ConfigError, OptionError
from penstock.core.states import State
from penstock.service.egress.egress import Egress
from penstock.service.egress.policy import EgressPolicy
from penstock.service.sealing import SecretSealer
from penstock.service.webhooks.book import OVERLAP, WebhookBook
from penstock.service.webhooks.deliveries import Delivery, DeliveryLog
from penstock.service.webhooks.endpoint import Endpoint
from penstock.settings import seconds

group = typer.Typer(help="Tell addresses of endings, and see what they were told.", no_args_is_help=True)

Webhook = Annotated[str, typer.Argument(metavar="ID", help="The webhook's id", show_default=False)]


@command(group, "list")
async def list_webhooks(desk: Desk) -> None:
    """List the webhooks of the tenant."""
    async with _book(desk) as book:
        found = await book.all(desk.tenant)
    desk.out.document({"webhooks": [_document(each) for each in found]})
    desk.out.table(
        ["webhook", "queues", "paused", "url"],
        ((each.id, ",".join(each.queues), each.paused, each.url) for each in found),
        drop=["paused", "queues"],
    )


@command(group, "add", prefix="egress")
async def add(
    desk: Desk,
    address: Annotated[str, typer.Argument(metavar="URL", help="Where messages go", show_default=False)],
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="What about, such as job.dead; again for more", show_default="all"),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", help="A queue or a pattern with *; again for more", show_default="all"),
    ] = None,
    note: Annotated[str | None, typer.Option(help="What it is for", show_default=False)] = None,
    allow: Annotated[
        str | None, setting("egress.allow", "Networks that may be reached though they are not public")
    ] = None,
    ports: Annotated[str | None, setting("egress.ports", "Ports that may be reached")] = None,
    plain: Annotated[bool | None, setting("egress.plain", "Allow http://", "--plain")] = None,
) -> None:
    """Add a webhook, and print the secret that its messages are signed with: it is not shown again.

    A service that runs on the store sends them, and has to be allowed to, too.
    """
    async with _book(desk, may_be_new=True) as book:
        made = await book.add(desk.tenant, address, types=types, queues=queues, note=note)
    _tell_secret(desk, made)


@command(group, "rotate")
async def rotate(
    desk: Desk,
    webhook: Webhook,
    overlap: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the old secret signs too, such as 1h")
    ] = f"{OVERLAP / 3600:.0f}h",
) -> None:
    """Replace the secret of a webhook, and print the new one; for a while both sign."""
    async with _book(desk) as book:
        made = await book.rotate(desk.tenant, webhook, overlap=seconds("--overlap", overlap))
    _tell_secret(desk, made)


@command(group, "reseal")
async def reseal(desk: Desk) -> None:
    """Seal the secrets of all webhooks, or of one tenant's (--tenant), with the first of PENSTOCK_SECRET_KEY.

    Needed once after a key is set, and before an old key is taken out of the list.
    """
    async with _book(desk) as book:
        tenants = [desk.tenant] if desk.settings.tenant else sorted(await book.tenants())
        done = {tenant: await book.reseal(tenant) for tenant in tenants}
    desk.out.document({"resealed": done})
    desk.out.line(f"{sum(done.values())} webhooks of {len(done)} tenants were sealed anew")


@command(group, "pause")
async def pause(
    desk: Desk,
    webhook: Webhook,
    reason: Annotated[str, typer.Option(help="Why", show_default=True)] = "paused by hand",
) -> None:
    """Let messages wait until the webhook is resumed."""
    async with _book(desk) as book:
        _tell(desk, await book.change(desk.tenant, webhook, paused=reason))


@command(group, "resume")
async def resume(desk: Desk, webhook: Webhook) -> None:
    """Send what waits, within a minute."""
    async with _book(desk) as book:
        _tell(desk, await book.change(desk.tenant, webhook, paused=None))


@command(group, "remove")
async def remove(desk: Desk, webhook: Webhook) -> None:
    """Send nothing more there; messages that still wait are cancelled."""
    async with _book(desk) as book:
        await book.remove(desk.tenant, webhook)
    desk.out.document({"id": webhook, "removed": True})
    desk.out.line(f"removed webhook {webhook}")


@command(group, "ping")
async def ping(desk: Desk, webhook: Webhook) -> None:
    """Send a message about nothing, to try the way; print the id of its delivery."""
    async with _log(desk) as log:
        sent = await log.ping(desk.tenant, webhook)
    desk.out.document(_delivery(sent))
    desk.out.line(sent.id)


@command(group, "deliveries", prefix="list")
async def deliveries(
    desk: Desk,
    webhook: Annotated[
        str | None, typer.Argument(metavar="ID", help="Of one webhook", show_default="all")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only in this state; again for more", show_default="all"),
    ] = None,
    limit: Annotated[str | None, setting("list.limit", "How many at most", metavar="N")] = None,
) -> None:
    """List what was sent or waits to be, the newest first."""
    async with _log(desk) as log:
        page = await log.listed(desk.tenant, webhook, states=_states(state), limit=desk.settings.list.limit)
    desk.out.document({"deliveries": [_delivery(each) for each in page.deliveries], "next": page.next})
    desk.out.table(
        ["delivery", "webhook", "type", "state", "attempts", "made", "answer"],
        (
            (each.id, each.webhook, each.type, each.state, each.attempts, local(each.made_at), _answer(each))
            for each in page.deliveries
        ),
        right=frozenset({"attempts"}),
        drop=["webhook", "made", "type"],
    )


@command(group, "redeliver")
async def redeliver(
    desk: Desk,
    ids: Annotated[
        list[str], typer.Argument(metavar="DELIVERY…", help="Ids of deliveries", show_default=False)
    ],
) -> None:
    """Send messages again, under their own ids."""
    async with _log(desk) as log:
        again = [await log.redeliver(desk.tenant, each) for each in ids]
    desk.out.document({"deliveries": [_delivery(each) for each in again]})
    for each in again:
        desk.out.line(each.id)


@asynccontextmanager
async def _book(desk: Desk, *, may_be_new: bool = False) -> AsyncIterator[WebhookBook]:
    _refuse_service(desk)
    said = desk.settings.egress
    egress = Egress(EgressPolicy.of(allow=said.allow, ports=said.ports, plain=said.plain))
    async with desk.store(may_be_new=may_be_new) as store:
        yield WebhookBook(store, egress, SecretSealer.of(desk.settings.secret_key))


@asynccontextmanager
async def _log(desk: Desk) -> AsyncIterator[DeliveryLog]:
    _refuse_service(desk)
    async with desk.store() as store:
        yield DeliveryLog(store, WebhookBook(store, Egress()))


def _refuse_service(desk: Desk) -> None:
    """Secrets of webhooks are out of reach of a service's clients: there its own routes manage them."""
    url = desk.settings.url or (None if desk.app is None else desk.app.url)
    if url is not None and url.startswith(("http://", "https://")):
        raise ConfigError(
            "webhooks of a service are managed by its own routes, /v1/webhooks, or by this command on the "
            "url of the store behind it"
        )


def _states(given: list[str] | None) -> frozenset[State]:
    for each in given or ():
        if each not in set(State):
            raise OptionError("--state", each, f"one of {', '.join(State)}")
    return frozenset(map(State, given or ()))


def _tell(desk: Desk, endpoint: Endpoint) -> None:
    desk.out.document(_document(endpoint))
    desk.out.line(f"{endpoint.id} {'sends' if endpoint.paused is None else f'waits: {endpoint.paused}'}")


def _tell_secret(desk: Desk, endpoint: Endpoint) -> None:
    desk.out.document(_document(endpoint) | {"secret": endpoint.secrets[0].text})
    desk.out.fields([("webhook", endpoint.id), ("secret", endpoint.secrets[0].text)])


def _document(endpoint: Endpoint) -> dict[str, Any]:
    return without_none(
        id=endpoint.id,
        url=endpoint.url,
        types=endpoint.types,
        queues=endpoint.queues,
        made_at=utc(endpoint.made_at),
        note=endpoint.note,
        paused=endpoint.paused,
    )


def _delivery(each: Delivery) -> dict[str, Any]:
    return without_none(
        id=each.id,
        webhook=each.webhook,
        message=each.message,
        type=each.type,
        state=each.state,
        attempts=each.attempts,
        made_at=utc(each.made_at),
        next_at=utc(each.next_at),
        ended_at=utc(each.ended_at),
        status=each.status,
        error=each.error,
    )


def _answer(each: Delivery) -> str | None:
    return each.error if each.status is None else str(each.status)
