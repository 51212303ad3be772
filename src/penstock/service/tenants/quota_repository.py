"""Stores the quotas: what each tenant may use, and the default for tenants without a quota of their own."""

from typing import Annotated, Final

import msgspec

from penstock.core.errors import OptionError
from penstock.core.names import check_name
from penstock.stores.protocol import KeyValue
from penstock.stores.values import EVERYONE

NAMESPACE: Final = "quotas"
DEFAULT_NAMESPACE: Final = "default-quotas"
_DEFAULT: Final = "all"
_PAGE: Final = 200
Amount = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tenant may use. None sets no bound."""

    jobs_per_second: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None
    """Jobs taken in, over all queues and all processes of the service."""
    queue_length: Amount | None = None
    """Jobs that wait or run in one queue."""
    payload_bytes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    """The largest payload of a job."""
    schedules: Amount | None = None
    """Schedules; their records have no more than SCHEDULE_BYTES together."""
    queues: Amount | None = None
    """Queues, also those without any job. Each costs every process of the service some upkeep."""
    streams: Amount | None = None
    """Streams and long polls at one time, in each process of the service."""

    def over(self, other: "Quota") -> "Quota":
        """This quota, with the fields of the other where this one has none."""
        return msgspec.convert(msgspec.to_builtins(other) | msgspec.to_builtins(self), Quota)


BUILT_IN: Final = Quota(queues=1_000, schedules=1_000)
"""What holds where neither the tenant nor the defaults of the store say otherwise."""
FIELDS: Final = Quota.__struct_fields__


def quota_of(**fields: float | None) -> Quota:
    """A quota from numbers that someone gave; OptionError names the one that cannot be."""
    for name, value in fields.items():
        try:
            msgspec.convert({name: value}, Quota)
        except msgspec.ValidationError as error:
            wanted = str(error).partition(" - at")[0].replace("`", "").removeprefix("Expected ")
            raise OptionError(name, value, wanted) from None
    return msgspec.convert(fields, Quota)


class QuotaRepository:
    """The quotas in the key-value entries of a store."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store

    async def default(self) -> Quota:
        """The default quota, as it was set."""
        entry = await self._store.get_entry(EVERYONE, DEFAULT_NAMESPACE, _DEFAULT)
        return Quota() if entry is None else msgspec.json.decode(entry.body, type=Quota)

    async def own(self, tenant: str) -> Quota | None:
        """The quota that was set for the tenant itself."""
        entry = await self._store.get_entry(EVERYONE, NAMESPACE, check_name("tenant", tenant))
        return None if entry is None else msgspec.json.decode(entry.body, type=Quota)

    async def of(self, tenant: str) -> Quota:
        """The quota of the tenant, with defaults."""
        own = await self.own(tenant)
        default = (await self.default()).over(BUILT_IN)
        return default if own is None else own.over(default)

    async def all(self) -> dict[str, Quota]:
        """The quotas that were set for tenants, by name."""
        found: dict[str, Quota] = {}
        after = ""
        while page := await self._store.list_entries(EVERYONE, NAMESPACE, after=after, limit=_PAGE):
            found |= {entry.name: msgspec.json.decode(entry.body, type=Quota) for entry in page}
            after = page[-1].name
        return found

    async def set(self, tenant: str | None, quota: Quota) -> None:
        """Set the quota of a tenant or, without a tenant, the default."""
        place = (
            (EVERYONE, DEFAULT_NAMESPACE, _DEFAULT)
            if tenant is None
            else (EVERYONE, NAMESPACE, check_name("tenant", tenant))
        )
        await self._store.put_entry(*place, msgspec.json.encode(quota))

    async def unset(self, tenant: str | None) -> bool:
        """Remove a quota that was set; False when none was."""
        place = (
            (EVERYONE, DEFAULT_NAMESPACE, _DEFAULT)
            if tenant is None
            else (EVERYONE, NAMESPACE, check_name("tenant", tenant))
        )
        return await self._store.delete_entry(*place)
