"""`penstock webhooks`: add, pause and remove webhooks, rotate their secrets, list and repeat deliveries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.options import setting
from penstock.cli.output import utc, without_none
from penstock.cli.registration import command, command_group
from penstock.core.errors import ConfigError, OptionError
from penstock.core.states import State
from penstock.service.egress.egress import Egress
from penstock.service.egress.policy import EgressPolicy
from penstock.service.sealing import SecretSealer
from penstock.service.webhooks.deliveries import Delivery, DeliveryLog
from penstock.service.webhooks.endpoint import Endpoint
from penstock.service.webhooks.repository import OVERLAP, WebhookRepository
from penstock.settings import seconds
from penstock.stores.registry import StoreKind, kind_of

group = command_group("Add, pause and remove webhooks; list and repeat their deliveries.")

Webhook = Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook", show_default=False)]


@command(group, "list")
async def list_webhooks(context: CommandContext) -> None:
    """List the webhooks of the tenant."""
    async with _book(context) as book:
        found = await book.all(context.tenant)
    context.out.documents(map(_webhook_document, found))
    context.out.table(
        ["webhook", "queues", "paused", "url"],
        ((each.id, ",".join(each.queues), each.paused, each.url) for each in found),
        drop=["paused", "queues"],
    )


@command(group, "add", prefix="egress")
async def add(
    context: CommandContext,
    address: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="URL that receives the messages, such as https://example.org/hook",
            show_default=False,
        ),
    ],
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Type of event to send, such as job.dead; may be repeated",
            show_default="all types",
        ),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="Queue whose events to send, or a pattern such as mail.*; may be repeated",
            show_default="all queues",
        ),
    ] = None,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Note for people, such as 'alerts of the shop'")
    ] = None,
    allow: Annotated[
        str | None,
        setting(
            "egress.allow",
            "Networks that are not public and may be reached, such as 10.1.0.0/16",
            metavar="NETWORKS",
        ),
    ] = None,
    ports: Annotated[
        str | None,
        setting(
            "egress.ports",
            "Ports that may be reached, such as 443,9000-9010",
            default="443,8443, with --plain also 80,8080",
            metavar="PORTS",
        ),
    ] = None,
    plain: Annotated[
        bool | None, setting("egress.plain", "Allow http:// as well as https://", "--plain")
    ] = None,
) -> None:
    """Add a webhook, and print the secret that its messages are signed with: it is not shown again.

    The messages are sent by a service on the same store. --allow, --ports and --plain must be set there too.
    """
    async with _book(context, may_be_new=True) as book:
        made = await book.add(context.tenant, address, types=types, queues=queues, note=note)
    _print_secret(context, made)


@command(group, "rotate")
async def rotate(
    context: CommandContext,
    webhook: Webhook,
    overlap: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long messages are signed with the old secret too, such as 1h"),
    ] = f"{OVERLAP / 3600:.0f}h",
) -> None:
    """Replace the secret of a webhook, and print the new one; messages are signed with both for a while."""
    async with _book(context) as book:
        made = await book.rotate(context.tenant, webhook, overlap=seconds("--overlap", overlap))
    _print_secret(context, made)


@command(group, "reseal")
async def reseal(context: CommandContext) -> None:
    """Encrypt the secrets of all webhooks, or of one tenant's, with the first key of PENSTOCK_SECRET_KEY.

    Run it once after a key was set, and before an old key is removed from the list.
    """
    async with _book(context) as book:
        tenants = [context.tenant] if context.settings.tenant else sorted(await book.tenants())
        done = {tenant: await book.reseal(tenant) for tenant in tenants}
    context.out.document({"resealed": done})
    context.out.line(f"{sum(done.values())} webhooks of {len(done)} tenants were encrypted again")


@command(group, "pause")
async def pause(
    context: CommandContext,
    webhook: Webhook,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Reason for the pause, shown by webhooks list")
    ] = "paused by hand",
) -> None:
    """Pause a webhook: its messages wait until it is resumed."""
    async with _book(context) as book:
        _print_webhook(context, await book.change(context.tenant, webhook, paused=reason))


@command(group, "resume")
async def resume(context: CommandContext, webhook: Webhook) -> None:
    """Resume a webhook: its waiting messages are sent within a minute."""
    async with _book(context) as book:
        _print_webhook(context, await book.change(context.tenant, webhook, paused=None))


@command(group, "remove")
async def remove(context: CommandContext, webhook: Webhook) -> None:
    """Remove a webhook; its waiting messages are cancelled."""
    async with _book(context) as book:
        await book.remove(context.tenant, webhook)
    context.out.document({"id": webhook, "removed": True})
    context.out.line(f"removed webhook {webhook}")


@command(group, "ping")
async def ping(context: CommandContext, webhook: Webhook) -> None:
    """Send a test message to a webhook, and print the id of its delivery."""
    async with _delivery_log(context) as log:
        sent = await log.ping(context.tenant, webhook)
    context.out.document(_delivery_document(sent))
    context.out.line(sent.id)


@command(group, "deliveries", prefix="list")
async def deliveries(
    context: CommandContext,
    webhook: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id of the webhook", show_default="all webhooks")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only deliveries in this state, such as dead; may be repeated",
            show_default="all states",
        ),
    ] = None,
    limit: Annotated[
        str | None, setting("list.limit", "Maximum number of rows, such as 100", metavar="N")
    ] = None,
) -> None:
    """List the deliveries, sent or waiting, the newest first."""
    _refuse_service(context)
    async with context.store() as store:
        log = DeliveryLog(store, WebhookRepository(store, Egress()))
        page = await log.listed(
            context.tenant, webhook, states=_states(state), limit=context.settings.list.limit
        )
        now = await store.clock.now()
    context.out.documents(map(_delivery_document, page.deliveries))
    context.out.table(
        ["delivery", "webhook", "type", "state", "attempts", "made", "response"],
        (
            (
                each.id,
                each.webhook,
                each.type,
                each.state,
                each.attempts,
                context.out.time(each.made_at, now),
                _response_text(each),
            )
            for each in page.deliveries
        ),
        right=frozenset({"attempts"}),
        drop=["webhook", "made", "type"],
    )


@command(group, "redeliver")
async def redeliver(
    context: CommandContext,
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="DELIVERY…",
            help="Ids of deliveries, as webhooks deliveries prints them",
            show_default=False,
        ),
    ],
) -> None:
    """Send messages again, with their own ids, and print the ids of the new deliveries."""
    async with _delivery_log(context) as log:
        again = [await log.redeliver(context.tenant, each) for each in ids]
    context.out.documents(map(_delivery_document, again))
    for each in again:
        context.out.line(each.id)


@asynccontextmanager
async def _book(context: CommandContext, *, may_be_new: bool = False) -> AsyncIterator[WebhookRepository]:
    _refuse_service(context)
    egress_settings = context.settings.egress
    egress = Egress(
        EgressPolicy.of(allow=egress_settings.allow, ports=egress_settings.ports, plain=egress_settings.plain)
    )
    async with context.store(may_be_new=may_be_new) as store:
        yield WebhookRepository(store, egress, SecretSealer.of(context.settings.secret_key))


@asynccontextmanager
async def _delivery_log(context: CommandContext) -> AsyncIterator[DeliveryLog]:
    _refuse_service(context)
    async with context.store() as store:
        yield DeliveryLog(store, WebhookRepository(store, Egress()))


def _refuse_service(context: CommandContext) -> None:
    """Refuse the URL of a service: its clients cannot read secrets, and its own routes manage webhooks."""
    url = context.settings.url or (None if context.app is None else context.app.url)
    if url is not None and kind_of(url) is StoreKind.REMOTE:
        raise ConfigError(
            "webhooks of a service are managed by its own routes, /v1/webhooks, or by this command on the "
            "url of the store behind it"
        )


def _states(given: list[str] | None) -> frozenset[State]:
    for each in given or ():
        if each not in set(State):
            raise OptionError("--state", each, f"one of {', '.join(State)}")
    return frozenset(map(State, given or ()))


def _print_webhook(context: CommandContext, endpoint: Endpoint) -> None:
    context.out.document(_webhook_document(endpoint))
    context.out.line(
        f"{endpoint.id} {'is active' if endpoint.paused is None else f'is paused: {endpoint.paused}'}"
    )


def _print_secret(context: CommandContext, endpoint: Endpoint) -> None:
    context.out.document(_webhook_document(endpoint) | {"secret": endpoint.secrets[0].text})
    context.out.fields([("webhook", endpoint.id), ("secret", endpoint.secrets[0].text)])


def _webhook_document(endpoint: Endpoint) -> dict[str, Any]:
    return without_none(
        id=endpoint.id,
        url=endpoint.url,
        types=endpoint.types,
        queues=endpoint.queues,
        made_at=utc(endpoint.made_at),
        note=endpoint.note,
        paused=endpoint.paused,
    )


def _delivery_document(each: Delivery) -> dict[str, Any]:
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


def _response_text(each: Delivery) -> str | None:
    return each.error if each.status is None else str(each.status)
