"""The whole protocol of a store, call by call, for Penstock's own clients and workers far from the store."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from penstock.core.errors import InvalidError
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.core.payload import Description
from penstock.core.states import State
from penstock.service import portions, quota_calls
from penstock.service.auth.scopes import ALL
from penstock.service.checks import check_arguments
from penstock.service.errors import (
    ForbiddenError,
    MalformedError,
    NotFoundError,
    QuotaError,
    TooLargeError,
)
from penstock.service.named_queues import require_named, require_relayed, shown_relays
from penstock.service.notifications import notifications
from penstock.service.portions import in_portions
from penstock.service.principal import Verb
from penstock.service.problems import BadRequestError, validation_fault
from penstock.service.request import Request, unbroken
from penstock.service.reserved_names import check_reader, is_reserved
from penstock.service.responses import LINES, EncodedBody, StreamResponse
from penstock.service.routing import Routes
from penstock.service.visible_workers import require_worker, visible_versions, visible_workers
from penstock.stores.absent import ANSWERS
from penstock.stores.bounds import CLAIMABLE_LIMIT, DUE_LIMIT
from penstock.stores.protocol import HasHoldups
from penstock.stores.values import (
    EVERYONE,
    ClaimablePage,
    DuePage,
    QueueInfo,
    Relay,
    SeenVersion,
    StoredSchedule,
    StoreInfo,
    WorkerEntry,
)
from penstock.stores.wire import (
    ANY_QUEUE,
    CALLS,
    MEDIA_TYPE,
    MOST_ITEMS,
    MOST_SUBSCRIPTIONS,
    Call,
    Hello,
    Subscriptions,
)

routes: Final = Routes()
NAMESPACE: Final = "client."
"""Prefix of the namespaces of clients: namespaces without it hold the service's own secrets."""
MOST_WORKERS: Final = 1_000
"""Registered workers of a tenant: they are read together."""
WORKER_BYTES: Final = 64 << 10
"""Bytes of the record in which a worker describes its queues and tasks."""
WORKERS_BYTES: Final = 4 << 20
"""The same of all workers of a tenant together: a client that lists one of them gets them all."""
MOST_READERS: Final = 1_000
"""Registered readers of the events of a queue."""
COSTLY_CALLS: Final = frozenset(
    {"check", "children", "find", "leases", "list_queues", "list_schedules", "list_tenants", "list_workers"}
    | {"list_versions", "order_worker", "worker_order"}
)
"""Calls that read many records."""
_PACKER: Final = msgspec.msgpack.Encoder()
_Handler = Callable[[Request, Call, list[Any], dict[str, Any]], Awaitable[Any]]


@routes.post("/v1/store/hello", Verb.STORE)
async def hello(request: Request) -> EncodedBody:
    """Describe the store to a remote client: its kind and limits."""
    info = await request.store.health.info()
    return _packed(Hello(info.kind, request.store.numbers_in_order, request.service.limits.body_bytes))


@routes.post("/v1/store/subscriptions", Verb.STORE)
async def subscriptions(request: Request, body: bytes) -> StreamResponse:
    """Subscribe: a line of JSON for each notification, and null once subscribed and now and then after."""
    wanted: Subscriptions = _unpacked(body, Subscriptions)
    if not 1 <= len(wanted.topics) <= MOST_SUBSCRIPTIONS:
        raise MalformedError(f"topics: found {len(wanted.topics)}, wanted 1 to {MOST_SUBSCRIPTIONS}")
    tenant = _tenant(request, wanted.tenant)
    topics = [each for each in wanted.topics if each.queue != ANY_QUEUE]
    for each in topics:
        _queue(request, tenant, each.queue)
    is_for_all = len(topics) < len(wanted.topics)
    return StreamResponse(notifications(request, tenant, topics, is_for_all=is_for_all), LINES)


@routes.post("/v1/store/{move}", Verb.STORE, costly_calls=COSTLY_CALLS)
async def call_store(request: Request, move: str, body: bytes) -> EncodedBody:
    """Make one call of the store protocol for the tenant."""
    call = CALLS.get(move)
    if call is None:
        raise NotFoundError(f"a store has no call {move!r}")
    try:
        named, queue, given = await request.yielder.run(call.decode_in_steps(body))
    except msgspec.ValidationError as error:
        raise BadRequestError(validation_fault(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is not MessagePack: {error}") from None
    await request.yielder.run(check_arguments(move, given))
    first: list[Any] = []
    if move == "put_schedule":
        # The schedule itself says which queue is its own.
        queue = given["schedule"].queue.name
    if call.scope == "queue" or move == "put_schedule":
        first = [_queue(request, _tenant(request, named), queue)]
    elif call.scope == "tenant":
        first = [_tenant(request, named)]
    ref = first[0] if first and isinstance(first[0], QueueRef) else None
    is_held = await require_named(request, move, ref, given)
    if not is_held or (move in ANSWERS and not await request.service.known.has(first[0])):
        return EncodedBody(call.encode_answer(ANSWERS[move](given)), MEDIA_TYPE)

    async def work() -> Any:
        return await _SPECIAL.get(move, _plain)(request, call, first, given)

    doing = work() if ref is None else quota_calls.within_queues(request, move, ref, given, work)
    return EncodedBody(call.encode_answer(await unbroken(doing)), MEDIA_TYPE)


def _of_queue(handler: Callable[[Request, QueueRef, Mapping[str, Any]], Awaitable[Any]]) -> _Handler:
    async def handle(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
        return await handler(request, first[0], given)

    return handle


async def _plain(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    method = getattr(getattr(request.store, call.part), call.name)
    return await in_portions(call.name, given, lambda some: method(*first, **some))


def _bounded(read: Callable[..., Awaitable[Any]]) -> _Handler:
    """A read whose answer is bounded by bytes: the client asks for what follows."""

    async def handle(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
        return await read(
            getattr(request.store, call.part), *first, **given, most_bytes=request.service.limits.answer_bytes
        )

    return handle


async def _leases(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    running = (await request.store.reads.counts(first[0]))[State.ACTIVE]
    if running > MOST_ITEMS:
        raise TooLargeError(f"the answer: found {running} leases, wanted at most {MOST_ITEMS}")
    return await _plain(request, call, first, given)


async def _relays(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> list[Relay]:
    return await shown_relays(request, first[0], **given)


async def _relayed(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> None:
    await require_relayed(request, first[0], given["numbers"])
    await request.store.flows.delete_relay_entries(first[0], given["numbers"])


async def _reader(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    check_reader(given["name"])
    if call.name == "register_reader":
        there = {reader.name for reader in await request.store.readers.list_readers(first[0])}
        if given["name"] not in there and len(there) >= MOST_READERS:
            raise QuotaError.of("readers", f"{len(there)} and 1 more", f"at most {MOST_READERS}", 60.0)
    return await _plain(request, call, first, given)


async def _delete_queue(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    await request.deleting(first[0])
    left = await _plain(request, call, first, given)
    if left is not None and left.is_empty:
        request.service.known.forget(first[0])
        request.service.client(first[0].tenant).forget(first[0].name)
        if request.service.audit is not None:
            who, tenant = request.principal.subject, first[0].tenant
            await request.service.audit.note(
                who=who, what="queue.delete", on=first[0].name, tenant=tenant, detail=""
            )
    return left


async def _queues(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> list[QueueInfo]:
    """The queues that the token is for, without the service's own queues."""
    found = await request.store.queues.list_queues(first[0])
    return [each for each in found if request.may(each.queue.name) and not is_reserved(each.queue.name)]


async def _due_queues(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> DuePage:
    """Those of the queues that the token is for."""
    for name in given.get("names") or ():
        check_name("names", name)
    limit = min(given.get("limit", DUE_LIMIT), 5 * DUE_LIMIT)
    page = await request.store.upkeep.due_queues(*first, **given | {"limit": limit})

    def is_theirs(name: str) -> bool:
        return request.may(name) and not is_reserved(name)

    return DuePage(
        [each for each in page.queues if is_theirs(each.name)],
        page.now,
        page.next,
        [name for name in page.unreachable if is_theirs(name)],
    )


async def _claimable_queues(
    request: Request, call: Call, first: list[Any], given: dict[str, Any]
) -> ClaimablePage:
    """Those of the queues that the token is for."""
    names = [check_name("names", name) for name in given["names"]]
    if len(names) > CLAIMABLE_LIMIT:
        raise MalformedError(f"names: found {len(names)}, wanted at most {CLAIMABLE_LIMIT}")
    theirs = [name for name in names if request.may(name) and not is_reserved(name)]
    return await request.store.upkeep.claimable_queues(*first, **given | {"names": theirs})


async def _schedules(
    request: Request, call: Call, first: list[Any], given: dict[str, Any]
) -> list[StoredSchedule]:
    for name in given.get("names") or ():
        check_name("names", name)
    kept = await request.store.schedules.list_schedules(first[0], given.get("names"))
    return [each for each in kept if request.may(each.queue.name)]


async def _key_value(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    if not request.may(ALL):
        raise ForbiddenError("key-value entries are of no queue: wanted the scope store for all queues")
    check_name("namespace", given["namespace"])
    given = given | {"namespace": NAMESPACE + given["namespace"]}
    if call.name == "list_entries":
        return await portions.entries(
            request.store.key_value, *first, **given, most_bytes=request.service.limits.answer_bytes
        )
    return await _plain(request, call, first, given)


async def _register_worker(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    worker: WorkerEntry = given["worker"]
    for queue in {*worker.queues, *worker.busy, *(job.queue for job in worker.jobs)}:
        _queue(request, first[0], queue)
    if (size := len(_PACKER.encode(worker))) > WORKER_BYTES:
        raise InvalidError("worker", Description(f"{size} bytes"), f"at most {WORKER_BYTES} bytes")
    async with request.service.registration_lock(first[0]):
        others = [
            each for each in await _require_worker(request, first[0], worker.name) if each.name != worker.name
        ]
        if len(others) >= MOST_WORKERS:
            raise QuotaError.of("workers", f"{len(others)} and 1 more", f"at most {MOST_WORKERS}", 60.0)
        if size + (held := sum(len(_PACKER.encode(each)) for each in others)) > WORKERS_BYTES:
            raise QuotaError.of(
                "workers", f"{held} and {size} more bytes", f"at most {WORKERS_BYTES} in all", 60.0
            )
        return await _plain(request, call, first, given)


async def _unregister_worker(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    await _require_worker(request, first[0], given["worker"])
    return await _plain(request, call, first, given)


async def _order_worker(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> bool:
    """The author of an order is who asked for it."""
    try:
        await require_worker(request, first[0], given["worker"])
    except NotFoundError:
        return False
    given = given | {"by": request.principal.subject}
    done: bool = await _plain(request, call, first, given)
    if done:
        await request.note(f"worker.{given['order']}", given["worker"])
    return done


async def _worker_order(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    await _require_worker(request, first[0], given["worker"])
    return await _plain(request, call, first, given)


async def _versions(
    request: Request, call: Call, first: list[Any], given: dict[str, Any]
) -> list[SeenVersion]:
    return await visible_versions(request, first[0])


async def _require_worker(request: Request, tenant: str, name: str) -> list[WorkerEntry]:
    """The tenant's workers; ForbiddenError if one of this name has other queues."""
    found = await request.store.workers.list_workers(tenant)
    for worker in found:
        if worker.name == name:
            for queue in worker.queues:
                request.require(queue)
    return found


async def _workers(
    request: Request, call: Call, first: list[Any], given: dict[str, Any]
) -> list[WorkerEntry]:
    """Those that serve a queue that the token is for, and of each only such queues."""
    return await visible_workers(request, first[0])


async def _tenants(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> list[str]:
    mine = (
        {request.tenant}
        if not request.principal.tenants
        else set(await request.service.tenants_of(request.principal))
    )
    return [each for each in await request.store.queues.list_tenants() if each in mine]


async def _holdup(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    held = await request.store.holdup() if isinstance(request.store, HasHoldups) else None
    if held is None or EVERYONE in request.principal.tenants:
        return held
    # It is a session of the server, with its user and program: of no concern to a tenant.
    return msgspec.structs.replace(held, who=None)


async def _info(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> StoreInfo:
    # Where the store is concerns nobody who asks from afar.
    return msgspec.structs.replace(await request.store.health.info(), url="")


async def _turn(request: Request, call: Call, first: list[Any], given: dict[str, Any]) -> None:
    if not request.service.allow_clock_control:
        raise ForbiddenError("the clock of this service is not turned: it is that of all tenants")
    await request.store.clock.advance_clock(given["by_ms"])


_SPECIAL: Final[Mapping[str, _Handler]] = {
    "enqueue": _of_queue(quota_calls.enqueue),
    "spawn": _of_queue(quota_calls.spawn),
    "redrive": _of_queue(quota_calls.redrive),
    "claim": _bounded(portions.claim),
    "get": _bounded(portions.get),
    "find": _bounded(portions.find),
    "children": _bounded(portions.children),
    "leases": _leases,
    "list_relay_entries": _relays,
    "delete_relay_entries": _relayed,
    "fire": _of_queue(quota_calls.fire),
    "due_queues": _due_queues,
    "claimable_queues": _claimable_queues,
    "list_schedules": _schedules,
    "put_schedule": _of_queue(quota_calls.put_schedule),
    "register_reader": _reader,
    "unregister_reader": _reader,
    "list_queues": _queues,
    "delete_queue": _delete_queue,
    "put_entry": _key_value,
    "get_entry": _key_value,
    "list_entries": _key_value,
    "delete_entry": _key_value,
    "register_worker": _register_worker,
    "unregister_worker": _unregister_worker,
    "list_workers": _workers,
    "order_worker": _order_worker,
    "worker_order": _worker_order,
    "list_versions": _versions,
    "list_tenants": _tenants,
    "holdup": _holdup,
    "info": _info,
    "advance_clock": _turn,
}


def _tenant(request: Request, named: str | None) -> str:
    """The tenant that the call is for: the principal's own, or one that it is the operator of."""
    if named is None or named == request.principal.tenant:
        return request.tenant
    return request.principal.acting_for(named).tenant


def _queue(request: Request, tenant: str, queue: str | None) -> QueueRef:
    if queue is None:
        raise MalformedError("queue: found nothing, wanted a name")
    request.require(queue)
    return QueueRef(tenant, check_name("queue", queue))


def _unpacked(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(validation_fault(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is not MessagePack: {error}") from None


def _packed(value: Any) -> EncodedBody:
    return EncodedBody(_PACKER.encode(value), MEDIA_TYPE)
