"""The whole protocol of a store, call by call, for Penstock's own clients and workers far from the store."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from penstock.core.errors import InvalidError
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.core.payload import Words
from penstock.core.states import State
from penstock.service import entering, portions
from penstock.service.answers import LINES, Bytes, Stream
from penstock.service.ask import Ask, unbroken
from penstock.service.auth.scopes import ALL
from penstock.service.checks import check_arguments
from penstock.service.errors import (
    ForbiddenError,
    MalformedError,
    NotFoundError,
    QuotaError,
    TooLargeError,
)
from penstock.service.naming import require_named, require_relayed, shown_relays
from penstock.service.portions import in_portions
from penstock.service.principal import Verb
from penstock.service.problems import BadRequestError, validation_fault
from penstock.service.reserved import check_reader, is_reserved
from penstock.service.routing import Routes
from penstock.stores.absent import ANSWERS
from penstock.stores.bounds import CLAIMABLE_LIMIT, DUE_LIMIT
from penstock.stores.protocol import Bell, HasHoldups, QueueBell
from penstock.stores.values import (
    EVERYONE,
    ClaimablePage,
    DuePage,
    QueueInfo,
    Relay,
    StoredSchedule,
    StoreInfo,
    Topic,
    WorkerEntry,
)
from penstock.stores.wire import (
    ANY_QUEUE,
    CALLS,
    MEDIA_TYPE,
    MOST_BELLS,
    MOST_ITEMS,
    Bells,
    Call,
    Hello,
    Ring,
)

routes: Final = Routes()
SHELF: Final = "client."
"""Stands before the names of a client's shelves: those of the service hold its secrets."""
MOST_WORKERS: Final = 1_000
"""Registered workers of a tenant: they are read together."""
WORKER_BYTES: Final = 64 << 10
"""What a worker says of itself: its queues and tasks."""
MOST_READERS: Final = 1_000
"""Registered readers of the events of a queue."""
ALIVE: Final = 15.0
"""Seconds after which a stream without rings shows that it lives."""
_PACKER: Final = msgspec.msgpack.Encoder()
_Handler = Callable[[Ask, Call, list[Any], dict[str, Any]], Awaitable[Any]]


@routes.post("/v1/store/hello", Verb.STORE)
async def hello(ask: Ask) -> Bytes:
    """Say what those have to know who use the store from afar."""
    info = await ask.store.info()
    return _packed(Hello(info.kind, ask.store.numbers_in_order, ask.service.limits.body_bytes))


@routes.post("/v1/store/bells", Verb.STORE)
async def bells(ask: Ask, body: bytes) -> Stream:
    """Listen to bells: a line of JSON for each that rang, and null once all are heard and now and then."""
    wanted: Bells = _unpacked(body, Bells)
    if not 1 <= len(wanted.bells) <= MOST_BELLS:
        raise MalformedError(f"bells: found {len(wanted.bells)}, wanted 1 to {MOST_BELLS}")
    tenant = _tenant(ask, wanted.tenant)
    one_each = [each for each in wanted.bells if each.queue != ANY_QUEUE]
    refs = [(_queue(ask, tenant, each.queue), each) for each in one_each]
    return Stream(_rings(ask, refs, tenant if len(one_each) < len(wanted.bells) else None), LINES)


@routes.post("/v1/store/{move}", Verb.STORE)
async def call_store(ask: Ask, move: str, body: bytes) -> Bytes:
    """Make one call of the store's protocol for the tenant."""
    call = CALLS.get(move)
    if call is None:
        raise NotFoundError(f"a store has no call {move!r}")
    try:
        named, queue, given = await ask.yielder.run(call.decode_in_steps(body))
    except msgspec.ValidationError as error:
        raise BadRequestError(validation_fault(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is not MessagePack: {error}") from None
    await ask.yielder.run(check_arguments(move, given))
    first: list[Any] = []
    if move == "put_schedule":
        # The schedule itself says which queue is its own.
        queue = given["schedule"].queue.name
    if call.scope == "queue" or move == "put_schedule":
        first = [_queue(ask, _tenant(ask, named), queue)]
    elif call.scope == "tenant":
        first = [_tenant(ask, named)]
    ref = first[0] if first and isinstance(first[0], QueueRef) else None
    is_held = await require_named(ask, move, ref, given)
    if not is_held or (move in ANSWERS and not await ask.service.known.has(first[0])):
        return Bytes(call.encode_answer(ANSWERS[move](given)), MEDIA_TYPE)

    async def work() -> Any:
        return await _SPECIAL.get(move, _plain)(ask, call, first, given)

    doing = work() if ref is None else entering.within_queues(ask, move, ref, given, work)
    return Bytes(call.encode_answer(await unbroken(doing)), MEDIA_TYPE)


def _of_queue(handler: Callable[[Ask, QueueRef, Mapping[str, Any]], Awaitable[Any]]) -> _Handler:
    async def handle(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
        return await handler(ask, first[0], given)

    return handle


async def _plain(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    method = getattr(ask.store, call.name)
    return await in_portions(call.name, given, lambda some: method(*first, **some))


def _bounded(read: Callable[..., Awaitable[Any]]) -> _Handler:
    """A read whose answer is bounded by bytes: the client asks for what follows."""

    async def handle(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
        return await read(ask.store, *first, **given, most_bytes=ask.service.limits.answer_bytes)

    return handle


async def _leases(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    running = (await ask.store.counts(first[0]))[State.ACTIVE]
    if running > MOST_ITEMS:
        raise TooLargeError(f"the answer: found {running} leases, wanted at most {MOST_ITEMS}")
    return await _plain(ask, call, first, given)


async def _relays(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> list[Relay]:
    return await shown_relays(ask, first[0], **given)


async def _relayed(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> None:
    await require_relayed(ask, first[0], given["numbers"])
    await ask.store.relayed(first[0], given["numbers"])


async def _reader(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    check_reader(given["name"])
    if call.name == "keep_reader":
        there = {reader.name for reader in await ask.store.readers(first[0])}
        if given["name"] not in there and len(there) >= MOST_READERS:
            raise QuotaError.of("readers", f"{len(there)} and 1 more", f"at most {MOST_READERS}", 60.0)
    return await _plain(ask, call, first, given)


async def _delete_queue(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    left = await _plain(ask, call, first, given)
    if left is not None and left.is_empty:
        ask.service.known.forget(first[0])
        ask.service.client(first[0].tenant).forget(first[0].name)
        if ask.service.audit is not None:
            who, tenant = ask.principal.subject, first[0].tenant
            await ask.service.audit.note(
                who=who, what="queue.delete", on=first[0].name, tenant=tenant, detail=""
            )
    return left


async def _queues(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> list[QueueInfo]:
    """Those that the token is for, without the service's own, which keeps them itself."""
    found = await ask.store.queues(first[0])
    return [each for each in found if ask.may(each.queue.name) and not is_reserved(each.queue.name)]


async def _due_queues(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> DuePage:
    """Those of the queues that the token is for."""
    for name in given.get("names") or ():
        check_name("names", name)
    limit = min(given.get("limit", DUE_LIMIT), 5 * DUE_LIMIT)
    page = await ask.store.due_queues(*first, **given | {"limit": limit})

    def is_theirs(name: str) -> bool:
        return ask.may(name) and not is_reserved(name)

    return DuePage(
        [each for each in page.queues if is_theirs(each.name)],
        page.now,
        page.next,
        [name for name in page.unreachable if is_theirs(name)],
    )


async def _claimable_queues(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> ClaimablePage:
    """Those of the queues that the token is for."""
    names = [check_name("names", name) for name in given["names"]]
    if len(names) > CLAIMABLE_LIMIT:
        raise MalformedError(f"names: found {len(names)}, wanted at most {CLAIMABLE_LIMIT}")
    theirs = [name for name in names if ask.may(name) and not is_reserved(name)]
    return await ask.store.claimable_queues(*first, **given | {"names": theirs})


async def _schedules(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> list[StoredSchedule]:
    for name in given.get("names") or ():
        check_name("names", name)
    kept = await ask.store.schedules(first[0], given.get("names"))
    return [each for each in kept if ask.may(each.queue.name)]


async def _shelves(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    if not ask.may(ALL):
        raise ForbiddenError("shelves are of no queue: wanted the scope store for all queues")
    check_name("shelf", given["shelf"])
    given = given | {"shelf": SHELF + given["shelf"]}
    if call.name == "shelf":
        return await portions.shelf(ask.store, *first, **given, most_bytes=ask.service.limits.answer_bytes)
    return await _plain(ask, call, first, given)


async def _register_worker(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    worker: WorkerEntry = given["worker"]
    for queue in worker.queues:
        _queue(ask, first[0], queue)
    if (size := len(_PACKER.encode(worker))) > WORKER_BYTES:
        raise InvalidError("worker", Words(f"{size} bytes"), f"at most {WORKER_BYTES} bytes")
    there = await _require_worker(ask, first[0], worker.name)
    if worker.name not in there and len(there) >= MOST_WORKERS:
        raise QuotaError.of("workers", f"{len(there)} and 1 more", f"at most {MOST_WORKERS}", 60.0)
    return await _plain(ask, call, first, given)


async def _unregister_worker(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    await _require_worker(ask, first[0], given["worker"])
    return await _plain(ask, call, first, given)


async def _require_worker(ask: Ask, tenant: str, name: str) -> set[str]:
    """The names of the tenant's workers; ForbiddenError if one of this name has other queues."""
    found = await ask.store.workers(tenant)
    for worker in found:
        if worker.name == name:
            for queue in worker.queues:
                ask.require(queue)
    return {worker.name for worker in found}


async def _workers(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> list[WorkerEntry]:
    """Those that serve a queue that the token is for, and of each only such queues."""
    found = []
    for worker in await ask.store.workers(first[0]):
        queues = {name: slots for name, slots in worker.queues.items() if ask.may(name)}
        if queues:
            found.append(msgspec.structs.replace(worker, queues=queues))
    return found


async def _tenants(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> list[str]:
    mine = {ask.tenant} if not ask.principal.tenants else set(await ask.service.tenants_of(ask.principal))
    return [each for each in await ask.store.tenants() if each in mine]


async def _holdup(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    held = await ask.store.holdup() if isinstance(ask.store, HasHoldups) else None
    if held is None or EVERYONE in ask.principal.tenants:
        return held
    # It is a session of the server, with its user and program: of no concern to a tenant.
    return msgspec.structs.replace(held, who=None)


async def _info(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> StoreInfo:
    # Where the store is concerns nobody who asks from afar.
    return msgspec.structs.replace(await ask.store.info(), url="")


async def _turn(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> None:
    if not ask.service.may_turn:
        raise ForbiddenError("the clock of this service is not turned: it is that of all tenants")
    await ask.store.turn(given["by_ms"])


_SPECIAL: Final[Mapping[str, _Handler]] = {
    "enqueue": _of_queue(entering.enqueue),
    "spawn": _of_queue(entering.spawn),
    "redrive": _of_queue(entering.redrive),
    "claim": _bounded(portions.claim),
    "get": _bounded(portions.get),
    "find": _bounded(portions.find),
    "children": _bounded(portions.children),
    "leases": _leases,
    "relays": _relays,
    "relayed": _relayed,
    "fire": _of_queue(entering.fire),
    "due_queues": _due_queues,
    "claimable_queues": _claimable_queues,
    "schedules": _schedules,
    "put_schedule": _of_queue(entering.put_schedule),
    "keep_reader": _reader,
    "drop_reader": _reader,
    "queues": _queues,
    "delete_queue": _delete_queue,
    "keep": _shelves,
    "kept": _shelves,
    "shelf": _shelves,
    "drop": _shelves,
    "register_worker": _register_worker,
    "unregister_worker": _unregister_worker,
    "workers": _workers,
    "tenants": _tenants,
    "holdup": _holdup,
    "info": _info,
    "turn": _turn,
}


def _tenant(ask: Ask, named: str | None) -> str:
    """The tenant that the call is for: the principal's own, or one that it is the operator of."""
    if named is None or named == ask.principal.tenant:
        return ask.tenant
    return ask.principal.acting_for(named).tenant


def _queue(ask: Ask, tenant: str, queue: str | None) -> QueueRef:
    if queue is None:
        raise MalformedError("queue: found nothing, wanted a name")
    ask.require(queue)
    return QueueRef(tenant, check_name("queue", queue))


async def _rings(ask: Ask, refs: list[tuple[QueueRef, Ring]], tenant: str | None) -> AsyncGenerator[bytes]:
    """Rings of these queues, and of all queues of the tenant that the token is for."""
    rang: asyncio.Queue[Ring] = asyncio.Queue()
    waiting: set[Ring] = set()

    def tell(ring: Ring) -> None:
        # One that was not told yet says all that a second one could.
        if ring not in waiting:
            waiting.add(ring)
            rang.put_nowait(ring)

    async def listen(bell: Bell, ring: Ring) -> None:
        try:
            while True:
                if await bell.wait(ALIVE):
                    tell(ring)
        finally:
            # A bell that fails ends the stream: whoever listens hangs it up anew.
            ask.over.set()

    async def listen_to_all(bell: QueueBell) -> None:
        try:
            while True:
                rings = await bell.wait(ALIVE)
                theirs = [name for name in rings.queues if ask.may(name) and not is_reserved(name)]
                if rings.for_all or len(waiting) + len(theirs) > MOST_BELLS:
                    # A client that is slow is told once, and not of each.
                    theirs = [ANY_QUEUE]
                for name in theirs:
                    tell(Ring(name, Topic.READY))
        finally:
            ask.over.set()

    async with ask.held(), AsyncExitStack() as stack:
        group = await stack.enter_async_context(_Listeners())
        for ref, ring in refs:
            group.add(listen(await stack.enter_async_context(ask.store.bell(ref, ring.topic)), ring))
        if tenant is not None:
            group.add(listen_to_all(await stack.enter_async_context(ask.store.queue_bell(tenant))))
        yield _line(None)
        while not ask.over.is_set():
            told = await ask.until_over(_next(rang))
            if told is not None:
                waiting.discard(told)
            yield _line(told)


def _line(told: Ring | None) -> bytes:
    return msgspec.json.encode(told) + b"\n"


async def _next(rang: "asyncio.Queue[Ring]") -> Ring | None:
    try:
        async with asyncio.timeout(ALIVE):
            return await rang.get()
    except TimeoutError:
        return None


class _Listeners:
    """Tasks that are ended with the block."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def __aenter__(self) -> "_Listeners":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _unpacked(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(validation_fault(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is not MessagePack: {error}") from None


def _packed(value: Any) -> Bytes:
    return Bytes(_PACKER.encode(value), MEDIA_TYPE)
