"""The service: an ASGI app over an open store, to be served on its own or mounted into another app."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Protocol

import msgspec

from penstock.bloom.filters import Filters
from penstock.client.client import Client
from penstock.client.persist import Persistence
from penstock.core.job import QueueRef
from penstock.service import access
from penstock.service.absent import KnownQueues
from penstock.service.access import Sent, Visit
from penstock.service.admission import RequestAdmission
from penstock.service.answers import Answer, Stream, encoded, send_body, send_stream
from penstock.service.ask import Ask
from penstock.service.egress.egress import Egress
from penstock.service.errors import ForbiddenError, ServiceError
from penstock.service.job_admission import limits_before_body
from penstock.service.keeping import TenantKeeper
from penstock.service.limits import IDENTIFIED, Disconnected, Limits, Receive, Scope, Send, within
from penstock.service.openapi import document
from penstock.service.principal import AuditLog, Door, Nobody, Principal, Quotas
from penstock.service.problems import problem_of
from penstock.service.reading import check_headers, check_names, headers_of, query_of, read_as
from penstock.service.reserved import check_queue
from penstock.service.routes import ROUTES
from penstock.service.routing import Route, Router
from penstock.service.sealing import SecretSealer
from penstock.service.tenants.turns import Turns
from penstock.service.webhooks.post_office import PostOffice
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE

_LOGGER: Final = logging.getLogger("penstock.service")
MOST_CLIENTS: Final = 512
"""Tenants whose ways into their queues are remembered."""
PATIENCE: Final = 5.0
"""Seconds that a request waits for a store that cannot be reached."""
TENANTS_KNOWN: Final = 2.0
"""Seconds after which an operator of all tenants sees a new one."""


class Duty(Protocol):
    """Work that goes on beside the requests while the service is open, until it is cancelled."""

    async def run(self) -> None:
        """Keep at it."""
        ...


class Service:
    """Serves the store's queues to whoever `door` knows. `duties` and `upkeep` run while it is open.

    Served on its own, a server's lifespan opens and closes it; mounted into another app, that app does, by
    `async with service:`.
    """

    def __init__(
        self,
        store: Store,
        *,
        door: Door,
        quotas: Quotas | None = None,
        audit: AuditLog | None = None,
        limits: Limits | None = None,
        egress: Egress | None = None,
        sealer: SecretSealer | None = None,
        duties: Sequence[Duty] = (),
        upkeep: TenantKeeper | None = None,
        routes: Iterable[Route] = ROUTES,
        may_turn: bool = False,
        filters: Filters | None = None,
    ) -> None:
        self.store = store
        self.door = door
        self.quotas = quotas
        self.audit = audit
        self.limits = limits or Limits()
        self.routes = list(routes)
        self.may_turn = may_turn
        """Whether the clock, which is that of all tenants, may be turned over HTTP: for tests."""
        self.known = KnownQueues(store)
        self.waiting: set[Ask] = set()
        self.requests = RequestAdmission(self.limits.requests_per_tenant)
        self.is_stopping = False
        self._router = Router(self.routes)
        self.webhooks = PostOffice(store, egress or Egress(), sealer=sealer)
        self._upkeep = upkeep
        self._duties = [*duties, *([] if upkeep is None else [upkeep]), self.webhooks]
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: dict[str, Client] = {}
        self._filters = filters
        self._turns: dict[tuple[str, tuple[str, ...]], Turns] = {}
        self._tenants: tuple[float, list[str]] = (float("-inf"), [])

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI document of its routes."""
        return msgspec.json.encode(document(self.routes))

    async def open(self) -> None:
        """Open the store and begin the duties."""
        await self.store.open()
        self.is_stopping = False
        self._tasks = [asyncio.create_task(duty.run()) for duty in self._duties]
        for task in self._tasks:
            task.add_done_callback(_tell)

    async def close(self) -> None:
        """End what waits, the duties and the store."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
        await self.store.close()

    def stop(self) -> None:
        """End streams and long polls at once, with what they have; all else is answered as before."""
        self.is_stopping = True
        for ask in list(self.waiting):
            ask.over.set()

    async def __aenter__(self) -> "Service":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def client(self, tenant: str) -> Client:
        """The way into the queues of a tenant."""
        client = self._clients.pop(tenant, None)
        if client is None:
            client = Client(
                self.store,
                tenant=tenant,
                persistence=Persistence(patience=PATIENCE),
                filters=self._filters,
            )
            if len(self._clients) >= MOST_CLIENTS:
                # The one not used for longest; what it has on its way still arrives.
                del self._clients[next(iter(self._clients))]
        self._clients[tenant] = client
        return client

    def changed(self, queue: QueueRef) -> None:
        """A schedule was put there: its first instant may come before the next look at all queues."""
        if self._upkeep is not None:
            self._upkeep.look_at(queue)

    def turns(self, queue: str, tenants: Sequence[str]) -> Turns:
        """Whose turn it is among these tenants at queues of this name."""
        known = (queue, tuple(tenants))
        turns = self._turns.pop(known, None) or Turns()
        if len(self._turns) >= MOST_CLIENTS:
            del self._turns[next(iter(self._turns))]
        self._turns[known] = turns
        return turns

    async def tenants_of(self, operator: Principal) -> list[str]:
        """The tenants that an operator claims for; `*` stands for all that have queues."""
        if EVERYONE not in operator.tenants:
            return list(operator.tenants)
        read_at, known = self._tenants
        if time.monotonic() - read_at > TENANTS_KNOWN:
            known = await self.store.tenants()
            self._tenants = time.monotonic(), known
        return known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, within(self.limits, send))
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as error:  # noqa: BLE001 (the server tells it and ends)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        headers = headers_of(scope)
        visit = Visit(scope["method"], access.request_id(headers))
        sent = Sent(send)
        try:
            try:
                await self._answer(scope, headers, receive, sent, visit)
            except Disconnected:
                raise
            except Exception as error:  # noqa: BLE001 (becomes a problem, and a line in the log)
                await self._refuse(error, sent, visit)
        except Disconnected:
            sent.status = sent.status or 499
        finally:
            if visit.slot is not None:
                visit.slot.release()
            access.log(visit, sent.status, time.perf_counter() - began)

    async def _answer(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, sent: Sent, visit: Visit
    ) -> None:
        check_headers(scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        route, values = self._router.find(visit.method, path)
        visit.path = route.path
        principal: Principal = Nobody()
        if route.verb is not None:
            principal = await self.door.authenticate(headers)
            visit.tenant, visit.subject = principal.tenant, principal.subject
            if (identified := scope.get(IDENTIFIED)) is not None:
                identified()
            if not principal.may(route.verb, values.get("queue")):
                raise ForbiddenError(f"{route.verb} is not in the token's scopes here")
        check_names(values)
        if "queue" in values:
            check_queue(route.verb, values["queue"])
        ask = Ask(self, route, principal, headers, receive, visit.request_id)
        given: dict[str, Any] = dict(values)
        if route.query is not None:
            given["query"] = query_of(scope, route.query)
        if route.takes is not None:
            limits = await limits_before_body(self.limits, self.quotas, route, values, principal)
            given["body"] = await read_as(limits, headers, receive, route.takes, ask.yielder)
        if route.verb is not None:
            # Not before the body is there: slow clients of a tenant are no burden to its other ones.
            visit.slot = ask.slot = self.requests.enter(principal.tenant)
        answer = await route.handler(ask, **given)
        about = {"x-request-id": visit.request_id}
        if isinstance(answer, Stream):
            await send_stream(sent, route.status, answer, about)
            return
        status = route.status
        if isinstance(answer, Answer):
            status, about = answer.status or status, about | dict(answer.headers)
            answer = answer.body
        await send_body(sent, status, *encoded(answer), about)

    async def _refuse(self, error: Exception, sent: Sent, visit: Visit) -> None:
        problem, headers = problem_of(error, visit.request_id)
        if problem.status >= 500:
            about = {"tenant": visit.tenant, "request": visit.request_id}
            _LOGGER.error("%s %s failed", visit.method, visit.path, exc_info=error, extra=about)
        if sent.status:
            # Too late for another status: the client sees an answer that breaks off.
            raise Disconnected from error
        headers = {**headers, "x-request-id": visit.request_id}
        if isinstance(error, ServiceError) and error.closes:
            headers["connection"] = "close"
        await send_body(sent, problem.status, *encoded(problem), headers)


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOGGER.error("a duty of the service ended", exc_info=error)
