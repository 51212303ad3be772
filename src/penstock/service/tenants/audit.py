"""The audit log: who did what to tenants, tokens and queues as an administrator. Newest first."""

import logging
import secrets
from typing import Final, Protocol

import msgspec

from penstock.stores.protocol import HasClock, HasKeyValue
from penstock.stores.values import EVERYONE

NAMESPACE: Final = "audit"
KEPT_MS: Final = 400 * 86_400_000
_NAME_CEILING_MS: Final = 10**14
_DELETED_PER_ENTRY: Final = 10
DETAIL_CHARS: Final = 1_000
_log: Final = logging.getLogger("penstock.audit")


class _Backend(HasKeyValue, HasClock, Protocol):
    """The parts of a store that this module uses."""


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change by an administrator: `what` is its name, such as `token.revoke`, `on` the changed object."""

    at: int
    who: str
    what: str
    on: str = ""
    tenant: str = EVERYONE
    detail: str = ""
    """Further facts for people; never a secret, a token or a payload."""


class Audit:
    """The audit log of a store, per tenant; changes that concern all tenants have the tenant `*`."""

    def __init__(self, store: _Backend) -> None:
        self._store = store

    async def note(
        self, *, who: str, what: str, on: str = "", tenant: str = EVERYONE, detail: str = ""
    ) -> AuditEntry:
        """Write an entry about a change that was made."""
        at = await self._store.clock.now()
        entry = AuditEntry(at, who[:255], what, on[:255], tenant, detail[:DETAIL_CHARS])
        # Entries are in the order of their names: the later, the lower.
        name = f"{_NAME_CEILING_MS - at}-{secrets.token_hex(4)}"
        await self._store.key_value.put_entry(tenant, NAMESPACE, name, msgspec.json.encode(entry))
        _log.info("%s %s by %s", what, entry.on, entry.who, extra={"tenant": tenant})
        for old in await self._store.key_value.list_entries(
            tenant, NAMESPACE, after=f"{_NAME_CEILING_MS - at + KEPT_MS}", limit=_DELETED_PER_ENTRY
        ):
            await self._store.key_value.delete_entry(tenant, NAMESPACE, old.name)
        return entry

    async def entries(self, tenant: str = EVERYONE, limit: int = 100) -> list[AuditEntry]:
        """The newest entries, the newest first."""
        found = await self._store.key_value.list_entries(tenant, NAMESPACE, limit=limit)
        return [msgspec.json.decode(each.body, type=AuditEntry) for each in found]
