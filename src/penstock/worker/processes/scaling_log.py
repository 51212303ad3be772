"""Decisions of autoscalers, kept in the store so that people see what was done, when and why."""

import secrets
from typing import Final, Protocol

import msgspec

from penstock.core.scaling import Decision, Direction
from penstock.stores.protocol import HasClock, HasKeyValue

NAMESPACE: Final = "scaling"
RETENTION_MS: Final = 30 * 86_400_000
_NAME_CEILING: Final = 10**14
_PRUNED_PER_NOTE: Final = 10


class _Backend(HasKeyValue, HasClock, Protocol):
    """The parts of a store that this module uses."""


class ScalingEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision as it is kept. `unit` is what was added or removed: processes, or slots of a queue."""

    at: int
    scaler: str
    """Host and process that decided."""
    unit: str
    direction: Direction
    units: int
    wanted: int
    reason: str


class ScalingLog:
    """The decisions for a tenant, newest first."""

    def __init__(self, store: _Backend, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def note(self, decision: Decision, *, scaler: str, unit: str) -> None:
        """Keep a decision; those older than thirty days are deleted on the way."""
        at = await self._store.clock.now()
        entry = ScalingEntry(
            at, scaler, unit, decision.direction, decision.units, decision.wanted, decision.reason
        )
        # Entries are in the order of their names: the later, the lower.
        name = f"{_NAME_CEILING - at}-{secrets.token_hex(4)}"
        key_value = self._store.key_value
        await key_value.put_entry(self._tenant, NAMESPACE, name, msgspec.json.encode(entry))
        old = await key_value.list_entries(
            self._tenant, NAMESPACE, after=f"{_NAME_CEILING - at + RETENTION_MS}", limit=_PRUNED_PER_NOTE
        )
        for each in old:
            await key_value.delete_entry(self._tenant, NAMESPACE, each.name)

    async def latest(self, limit: int = 50) -> list[ScalingEntry]:
        """The newest decisions."""
        found = await self._store.key_value.list_entries(self._tenant, NAMESPACE, limit=limit)
        return [msgspec.json.decode(entry.body, type=ScalingEntry) for entry in found]
