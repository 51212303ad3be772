"""A service in this process, asked over ASGI without a socket."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec

from penstock.service.app import Service
from penstock.service.errors import ForbiddenError
from penstock.service.principal import Principal
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store


class GrantedPrincipal(msgspec.Struct, frozen=True):
    """A principal that may do what its verbs say, in every queue or those named."""

    tenant: str = "acme"
    subject: str = "ada"
    tenants: tuple[str, ...] = ()
    verbs: frozenset[str] = frozenset({"read", "enqueue", "work", "manage", "store"})
    queues: frozenset[str] | None = None

    def may(self, verb: str, queue: str | None = None) -> bool:
        """By verb and queue."""
        return verb in self.verbs and (queue is None or self.queues is None or queue in self.queues)

    def acting_for(self, tenant: str) -> "GrantedPrincipal":
        """One of its tenants."""
        if tenant not in self.tenants:
            raise ForbiddenError("the token is not for this tenant")
        return msgspec.structs.replace(self, tenant=tenant, tenants=())


class HeaderAuthenticator:
    """Knows tenants by the header `x-tenant`: tests of routes are not about tokens."""

    def __init__(self, **people: Principal) -> None:
        self._people = people

    async def authenticate(self, headers: Mapping[str, str]) -> Principal:
        """Whoever the header names."""
        name = headers.get("x-tenant", "acme")
        return self._people.get(name) or GrantedPrincipal(tenant=name)


@asynccontextmanager
async def asked(store: Store | None = None, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an open service over the store, a new one in memory if none is given."""
    service = Service(store or MemoryStore(), **{"authenticator": HeaderAuthenticator(), **more})
    async with service, client_of(service) as client:
        yield client


def client_of(service: Service) -> httpx.AsyncClient:
    """A client that calls the service in this process."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(service), base_url="http://service")
