"""The check of webhook secrets: whether they are sealed, and whether this key opens them."""

from penstock.cli.command_context import CommandContext
from penstock.cli.doctor.check import Check
from penstock.service.egress.egress import Egress
from penstock.service.sealing import SecretSealer
from penstock.service.webhooks.repository import WebhookRepository
from penstock.stores.protocol import Store
from penstock.stores.registry import StoreKind, kind_of


async def examine_webhook_secrets(context: CommandContext, store: Store) -> list[Check]:
    """Check the secrets of the tenant's webhooks; no check without webhooks, or on the URL of a service."""
    url = context.settings.url or (None if context.app is None else context.app.url)
    if url is not None and kind_of(url) is StoreKind.REMOTE:
        return []
    sealer = SecretSealer.of(context.settings.secret_key)
    state = await WebhookRepository(store, Egress(), sealer).sealed_state(context.tenant)
    if not state.in_clear and not state.sealed:
        return []
    check = Check("webhook secrets", f"{state.sealed} sealed, {state.in_clear} in clear")
    if state.in_clear and sealer.has_key:
        check.findings.append(f"{state.in_clear} webhooks have secrets in clear: penstock webhooks reseal")
    elif state.in_clear:
        check.seen += ": set PENSTOCK_SECRET_KEY to seal them"
    if state.unreadable and sealer.has_key:
        names = ", ".join(state.unreadable)
        check.findings.append(f"no key of PENSTOCK_SECRET_KEY opens the secrets of {names}: deliveries wait")
    elif state.unreadable:
        check.seen += "; they cannot be checked without PENSTOCK_SECRET_KEY"
    return [check]
