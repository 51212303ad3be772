"""The service: an ASGI app over an open store, to be served on its own or mounted into another app."""

import asyncio
import logging
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from penstock.bloom.filters import Filters
from penstock.client.client import Client
from penstock.client.retrying import RetryingCaller
from penstock.core.job import QueueRef
from penstock.core.retry_pause import RetryPause
from penstock.service import access_log
from penstock.service.access_log import AccessLogEntry, StatusRecorder
from penstock.service.admission import BodyAdmission, RefusalPause, RequestAdmission
from penstock.service.egress.egress import Egress
from penstock.service.errors import BusyError, ForbiddenError, ServiceError
from penstock.service.job_admission import limits_before_body
from penstock.service.known_queues import KnownQueues
from penstock.service.limits import (
    CONNECTION,
    Disconnected,
    Limits,
    Receive,
    RequestConnection,
    Scope,
    Send,
    within,
)
from penstock.service.openapi import document
from penstock.service.principal import AnonymousPrincipal, AuditLog, Authenticator, Principal, Quotas
from penstock.service.problems import problem_of
from penstock.service.reading import check_headers, check_names, headers_of, query_of, read_as
from penstock.service.request import Request
from penstock.service.reserved_names import check_queue
from penstock.service.responses import Response, StreamResponse, encoded, send_body, send_stream
from penstock.service.routes import ROUTES
from penstock.service.routing import Route, Router
from penstock.service.sealing import SecretSealer
from penstock.service.shared_subscriptions import SharedSubscriptions
from penstock.service.tenant_upkeep import TenantUpkeep
from penstock.service.tenants.fair_claims import FairClaims
from penstock.service.tenants.relay_backlogs import RelayBacklogs
from penstock.service.webhooks.webhook_service import WebhookService
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE

if TYPE_CHECKING:
    from penstock.metrics.exposition import Exposition

_LOGGER: Final = logging.getLogger("penstock.service")
MOST_CLIENTS: Final = 512
"""Tenants whose clients are kept."""
RETRY_SECONDS: Final = 5.0
"""Seconds that a request waits for a store that cannot be reached."""
_DUTY_PAUSE: Final = RetryPause(0.2, 30.0)
TENANTS_KNOWN: Final = 2.0
"""Seconds after which an operator of all tenants sees a new one."""


class Duty(Protocol):
    """Work that goes on beside the requests while the service is open, until it is cancelled."""

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class Service:
    """Serves the store's queues to the principals that `authenticator` accepts.

    `duties` and `upkeep` run while the service is open.

    Served on its own, a server's lifespan opens and closes it; mounted into another app, that app does, by
    `async with service:`.
    """

    def __init__(
        self,
        store: Store,
        *,
        authenticator: Authenticator,
        quotas: Quotas | None = None,
        audit: AuditLog | None = None,
        limits: Limits | None = None,
        egress: Egress | None = None,
        sealer: SecretSealer | None = None,
        duties: Sequence[Duty] = (),
        upkeep: TenantUpkeep | None = None,
        routes: Iterable[Route] = ROUTES,
        allow_clock_control: bool = False,
        filters: Filters | None = None,
        exposition: "Exposition | None" = None,
    ) -> None:
        self.store = store
        self.exposition = exposition
        """What a scrape of `/metrics` gets, where metrics are counted."""
        self.authenticator = authenticator
        self.quotas = quotas
        self.audit = audit
        self.limits = limits or Limits()
        self.routes = list(routes)
        self.allow_clock_control = allow_clock_control
        """Whether a test may advance the store's clock over HTTP; the clock is that of all tenants."""
        self.known = KnownQueues(store.queues)
        self.backlogs = RelayBacklogs(store.flows, self.known.has)
        self.subscriptions = SharedSubscriptions(store.notifier)
        self.waiting: set[Request] = set()
        self.requests = RequestAdmission(self.limits.requests_per_tenant, self.limits.concurrent_requests)
        self._refusal_pause = RefusalPause()
        self.bodies = BodyAdmission(self.limits.bodies_per_tenant)
        self.is_stopping = False
        self._router = Router(self.routes)
        self.webhooks = WebhookService(store, egress or Egress(), sealer=sealer)
        self._upkeep = upkeep
        self._duties = [*duties, *([] if upkeep is None else [upkeep]), self.webhooks]
        if exposition is not None:
            self._duties.append(exposition)
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: dict[str, Client] = {}
        self._filters = filters
        self._fair_claims: dict[tuple[str, tuple[str, ...]], FairClaims] = {}
        self._tenants: tuple[float, list[str]] = (float("-inf"), [])
        self._condition_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._registration_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI document of its routes."""
        return msgspec.json.encode(document(self.routes))

    async def open(self) -> None:
        """Open the store and begin the duties."""
        await self.store.open()
        self.is_stopping = False
        self._tasks = [asyncio.create_task(_run_duty(duty)) for duty in self._duties]

    async def close(self) -> None:
        """End streams and long polls, the duties and the store."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
        await self.subscriptions.close()
        await self.store.close()

    def stop(self) -> None:
        """End streams and long polls at once, with what they have; all else is answered as before."""
        self.is_stopping = True
        for request in list(self.waiting):
            request.over.set()

    async def __aenter__(self) -> "Service":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def condition_lock(self, tenant: str) -> asyncio.Lock:
        """The lock that one condition of the tenant holds at a time; it exists while it is in use."""
        return self._condition_locks.setdefault(tenant, asyncio.Lock())

    def registration_lock(self, tenant: str) -> asyncio.Lock:
        """The lock held while a worker of the tenant registers, which reads all other workers first."""
        return self._registration_locks.setdefault(tenant, asyncio.Lock())

    def client(self, tenant: str) -> Client:
        """The client that enqueues into the queues of a tenant."""
        client = self._clients.pop(tenant, None)
        if client is None:
            client = Client(
                self.store,
                tenant=tenant,
                retrying=RetryingCaller(retry_timeout=RETRY_SECONDS),
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

    def fair_claims(self, queue: str, tenants: Sequence[str]) -> FairClaims:
        """The fair claims of these tenants at queues of this name."""
        known = (queue, tuple(tenants))
        fair_claims = self._fair_claims.pop(known, None) or FairClaims()
        if len(self._fair_claims) >= MOST_CLIENTS:
            del self._fair_claims[next(iter(self._fair_claims))]
        self._fair_claims[known] = fair_claims
        return fair_claims

    async def tenants_of(self, operator: Principal) -> list[str]:
        """The tenants that an operator claims for; `*` stands for all that have queues."""
        if EVERYONE not in operator.tenants:
            return list(operator.tenants)
        read_at, known = self._tenants
        if time.monotonic() - read_at > TENANTS_KNOWN:
            known = await self.store.queues.list_tenants()
            self._tenants = time.monotonic(), known
        return known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan of the server."""
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
        entry = AccessLogEntry(scope["method"], access_log.request_id(headers))
        sent = StatusRecorder(send)
        try:
            try:
                await self._answer(scope, headers, receive, sent, entry)
            except Disconnected:
                raise
            except Exception as error:  # noqa: BLE001 (becomes a problem, and a line in the log)
                if isinstance(error, BusyError) and entry.tenant is not None:
                    await self._pause_refusal(scope, entry)
                await self._refuse(error, sent, entry)
        except Disconnected:
            sent.status = sent.status or 499
        finally:
            for held in (entry.slot, entry.body):
                if held is not None:
                    held.release()
            access_log.log(entry, sent.status, time.perf_counter() - began)

    async def _answer(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        sent: StatusRecorder,
        entry: AccessLogEntry,
    ) -> None:
        check_headers(scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        route, values = self._router.find(entry.method, path)
        entry.path = route.path
        principal: Principal = AnonymousPrincipal()
        if route.verb is not None:
            principal = await self.authenticator.authenticate(headers)
            entry.tenant, entry.subject = principal.tenant, principal.subject
            connection: RequestConnection | None = scope.get(CONNECTION)
            if connection is not None:
                connection.identified(principal.tenant)
            if not principal.may(route.verb, values.get("queue")):
                raise ForbiddenError(f"{route.verb} is not in the token's scopes here")
        check_names(values)
        if "queue" in values:
            check_queue(route.verb, values["queue"])
        request = Request(self, route, principal, headers, receive, entry.request_id)
        given: dict[str, Any] = dict(values)
        if route.query is not None:
            given["query"] = query_of(scope, route.query)
        if route.takes is not None:
            limits = await limits_before_body(self.limits, self.quotas, route, values, principal)
            entry.body = self.bodies.enter(principal.tenant)
            given["body"] = await read_as(
                limits, headers, receive, route.takes, request.yielder, grow=entry.body.grow
            )
        if route.verb is not None:
            # Not before the body is there: slow clients of a tenant are no burden to its other ones.
            is_costly = route.is_costly_with(values)
            entry.slot = request.slot = await self.requests.enter(principal.tenant, is_costly=is_costly)
        answer = await route.handler(request, **given)
        about = {"x-request-id": entry.request_id}
        if isinstance(answer, StreamResponse):
            await send_stream(sent, route.status, answer, about)
            return
        status = route.status
        if isinstance(answer, Response):
            status, about = answer.status or status, about | dict(answer.headers)
            answer = answer.body
        await send_body(sent, status, *encoded(answer), about)

    async def _pause_refusal(self, scope: Scope, entry: AccessLogEntry) -> None:
        """Wait before a tenant is told that it has too much: a client that asks again at once is slowed."""
        for held in (entry.slot, entry.body):
            if held is not None:
                held.release()
        pause = self._refusal_pause.seconds(entry.tenant or "")
        if pause:
            connection: RequestConnection | None = scope.get(CONNECTION)
            if connection is not None:
                connection.refused()
            await asyncio.sleep(pause)

    async def _refuse(self, error: Exception, sent: StatusRecorder, entry: AccessLogEntry) -> None:
        problem, headers = problem_of(error, entry.request_id)
        if problem.status >= 500:
            about = {"tenant": entry.tenant, "request": entry.request_id}
            _LOGGER.error("%s %s failed", entry.method, entry.path, exc_info=error, extra=about)
        if sent.status:
            # Too late for another status: the client sees an answer that breaks off.
            raise Disconnected from error
        headers = {**headers, "x-request-id": entry.request_id}
        if isinstance(error, ServiceError) and error.closes:
            headers["connection"] = "close"
        await send_body(sent, problem.status, *encoded(problem), headers)


async def _run_duty(duty: Duty) -> None:
    """Run a duty until cancelled; a duty that fails begins again, since all tenants depend on it."""
    failures = 0
    while True:
        try:
            return await duty.run()
        except Exception:
            _LOGGER.exception("a duty of the service failed and begins again: %s", type(duty).__name__)
            await asyncio.sleep(_DUTY_PAUSE.after(failures, random.uniform))
            failures += 1
