"""The audit log: who did what to tenants, tokens and queues as an administrator. Newest first."""

import logging
import secrets
from typing import Final, Protocol

import msgspec

from penstock.stores.protocol import Clock, Shelves
from penstock.stores.values import EVERYONE

SHELF: Final = "audit"
KEPT_MS: Final = 400 * 86_400_000
_LATEST: Final = 10**14
_FORGOTTEN: Final = 10
DETAIL_CHARS: Final = 1_000
_log: Final = logging.getLogger("penstock.audit")


class _Place(Shelves, Clock, Protocol):
    """What is needed of a store."""


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """An administrative act. `what` is its name, such as `token.revoke`; `on` what it was done to."""

    at: int
    who: str
    what: str
    on: str = ""
    tenant: str = EVERYONE
    detail: str = ""
    """Further facts for people; never a secret, a token or a payload."""


class Audit:
    """The log of a store, per tenant; acts on all of them stand under `*`."""

    def __init__(self, store: _Place) -> None:
        self._store = store

    async def note(
        self, *, who: str, what: str, on: str = "", tenant: str = EVERYONE, detail: str = ""
    ) -> Act:
        """Write an act down, after it was done."""
        at = await self._store.now()
        act = Act(at, who[:255], what, on[:255], tenant, detail[:DETAIL_CHARS])
        # A shelf is in the order of names: the later, the lower.
        name = f"{_LATEST - at}-{secrets.token_hex(4)}"
        await self._store.keep(tenant, SHELF, name, msgspec.json.encode(act))
        _log.info("%s %s by %s", what, act.on, act.who, extra={"tenant": tenant})
        for old in await self._store.shelf(
            tenant, SHELF, after=f"{_LATEST - at + KEPT_MS}", limit=_FORGOTTEN
        ):
            await self._store.drop(tenant, SHELF, old.name)
        return act

    async def acts(self, tenant: str = EVERYONE, limit: int = 100) -> list[Act]:
        """The newest acts."""
        found = await self._store.shelf(tenant, SHELF, limit=limit)
        return [msgspec.json.decode(entry.body, type=Act) for entry in found]
