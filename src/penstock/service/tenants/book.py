"""The book of quotas: what each tenant may use, and what those may that have none of their own."""

from typing import Annotated, Final

import msgspec

from penstock.core.errors import OptionError
from penstock.core.names import check_name
from penstock.stores.protocol import Shelves
from penstock.stores.values import EVERYONE

SHELF: Final = "quotas"
DEFAULTS: Final = "default-quotas"
_DEFAULT: Final = "all"
_PAGE: Final = 200
Many = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tenant may use. None sets no bound."""

    jobs_per_second: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None
    """Jobs taken in, over all queues and all processes of the service."""
    queue_length: Many | None = None
    """Jobs that wait or run in one queue."""
    payload_bytes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    """The largest payload of a job."""
    schedules: Many | None = None
    """Schedules; their records have no more than SCHEDULE_BYTES together."""
    queues: Many | None = None
    """Queues, also those without any job. Each costs every process of the service some upkeep."""
    streams: Many | None = None
    """Streams and long polls at one time, in each process of the service."""

    def over(self, other: "Quota") -> "Quota":
        """This one, and the other where this one says nothing."""
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


class QuotaBook:
    """Quotas as the store keeps them."""

    def __init__(self, store: Shelves) -> None:
        self._store = store

    async def default(self) -> Quota:
        """What tenants may use that have no quota of their own, as it was set."""
        entry = await self._store.kept(EVERYONE, DEFAULTS, _DEFAULT)
        return Quota() if entry is None else msgspec.json.decode(entry.body, type=Quota)

    async def own(self, tenant: str) -> Quota | None:
        """What is set for the tenant itself."""
        entry = await self._store.kept(EVERYONE, SHELF, check_name("tenant", tenant))
        return None if entry is None else msgspec.json.decode(entry.body, type=Quota)

    async def of(self, tenant: str) -> Quota:
        """What the tenant may use."""
        own = await self.own(tenant)
        default = (await self.default()).over(BUILT_IN)
        return default if own is None else own.over(default)

    async def all(self) -> dict[str, Quota]:
        """What is set for tenants themselves, by name."""
        found: dict[str, Quota] = {}
        after = ""
        while page := await self._store.shelf(EVERYONE, SHELF, after=after, limit=_PAGE):
            found |= {entry.name: msgspec.json.decode(entry.body, type=Quota) for entry in page}
            after = page[-1].name
        return found

    async def set(self, tenant: str | None, quota: Quota) -> None:
        """Set what a tenant may use, or, without one, the others."""
        place = (
            (EVERYONE, DEFAULTS, _DEFAULT)
            if tenant is None
            else (EVERYONE, SHELF, check_name("tenant", tenant))
        )
        await self._store.keep(*place, msgspec.json.encode(quota))

    async def unset(self, tenant: str | None) -> bool:
        """Take that back; False when nothing was set."""
        place = (
            (EVERYONE, DEFAULTS, _DEFAULT)
            if tenant is None
            else (EVERYONE, SHELF, check_name("tenant", tenant))
        )
        return await self._store.drop(*place)
