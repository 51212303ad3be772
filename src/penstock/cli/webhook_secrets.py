"""What `doctor` says of the secrets of webhooks: whether they are sealed, and can be opened here."""

from penstock.cli.checks import Check
from penstock.cli.desk import Desk
from penstock.service.egress.egress import Egress
from penstock.service.sealing import SecretSealer
from penstock.service.webhooks.book import WebhookBook
from penstock.stores.protocol import Store


async def examine_webhook_secrets(desk: Desk, store: Store) -> list[Check]:
    """Of the tenant's webhooks; nothing where it has none, or where a service stands before the store."""
    url = desk.settings.url or (None if desk.app is None else desk.app.url)
    if url is not None and url.startswith(("http://", "https://")):
        return []
    sealer = SecretSealer.of(desk.settings.secret_key)
    state = await WebhookBook(store, Egress(), sealer).sealed_state(desk.tenant)
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
