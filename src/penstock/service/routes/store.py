"""The whole protocol of a store, call by call, for Penstock's own clients and workers far from the store."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from penstock.core.job import NewJob, QueueRef
from penstock.core.names import check_name
from penstock.service.absent import ANSWERS
from penstock.service.answers import LINES, Bytes, Stream
from penstock.service.ask import Ask, unbroken
from penstock.service.auth.scopes import ALL
from penstock.service.checks import check_arguments, check_jobs, check_stored
from penstock.service.errors import ForbiddenError, MalformedError, NotFoundError
from penstock.service.principal import Verb
from penstock.service.problems import BadRequestError, validation_fault
from penstock.service.reserved import check_reader, is_reserved
from penstock.service.routing import Routes
from penstock.stores.protocol import Bell, HasHoldups
from penstock.stores.values import QueueInfo, Spawn, StoredSchedule, StoreInfo, WorkerEntry
from penstock.stores.wire import CALLS, MEDIA_TYPE, MOST_BELLS, Bells, Call, Hello, Ring

routes: Final = Routes()
SHELF: Final = "client."
"""Stands before the names of a client's shelves: those of the service hold its secrets."""
ALIVE: Final = 15.0
"""Seconds after which a stream without rings shows that it lives."""
_PACKER: Final = msgspec.msgpack.Encoder()


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
    refs = [(_queue(ask, tenant, each.queue), each) for each in wanted.bells]
    return Stream(_rings(ask, refs), LINES)


@routes.post("/v1/store/{move}", Verb.STORE)
async def call_store(ask: Ask, move: str, body: bytes) -> Bytes:
    """Make one call of the store's protocol for the tenant."""
    call = CALLS.get(move)
    if call is None:
        raise NotFoundError(f"a store has no call {move!r}")
    try:
        named, queue, given = call.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequestError(validation_fault(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is not MessagePack: {error}") from None
    check_arguments(move, given)
    first: list[Any] = []
    if call.scope == "queue":
        first = [_queue(ask, _tenant(ask, named), queue)]
    elif call.scope == "tenant":
        first = [_tenant(ask, named)]
    if move in ANSWERS and not await ask.service.known.has(first[0]):
        return Bytes(call.encode_answer(ANSWERS[move](given)), MEDIA_TYPE)
    answer = await unbroken(_SPECIAL.get(move, _plain)(ask, call, first, given))
    return Bytes(call.encode_answer(answer), MEDIA_TYPE)


async def _plain(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    return await getattr(ask.store, call.name)(*first, **given)


async def _enqueue(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    queue: QueueRef = first[0]
    jobs: list[NewJob] = given["jobs"]
    spawns: list[Spawn] = given.get("spawns", [])
    for each in spawns:
        _queue(ask, queue.tenant, each.queue)
    await check_jobs(ask, queue, [*jobs, *(each.job for each in spawns)])
    return await _plain(ask, call, first, given)


async def _spawn(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    for each in given["spawns"]:
        _queue(ask, first[0].tenant, each.queue)
    await check_jobs(ask, first[0], [each.job for each in given["spawns"]])
    return await _plain(ask, call, first, given)


async def _fire(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    await check_jobs(ask, first[0], given["firing"].jobs)
    return await _plain(ask, call, first, given)


async def _reader(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    check_reader(given["name"])
    return await _plain(ask, call, first, given)


async def _queues(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> list[QueueInfo]:
    """Those that the token is for, without the service's own, which keeps them itself."""
    found = await ask.store.queues(first[0])
    return [each for each in found if ask.may(each.queue.name) and not is_reserved(each.queue.name)]


async def _schedules(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> list[StoredSchedule]:
    return [each for each in await ask.store.schedules(first[0]) if ask.may(each.queue.name)]


async def _put_schedule(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> None:
    schedule = given["schedule"]
    ref = _queue(ask, first[0], schedule.queue.name)
    check_name("schedule", schedule.name)
    record = check_stored(schedule)
    known = [each for each in await ask.store.schedules(ref.tenant) if each.name == schedule.name]
    for each in known:
        # A token for some queues puts none beside that of another, which has the name already.
        ask.require(each.queue.name)
    if ask.service.quotas is not None:
        if ref not in [each.queue for each in known]:
            await ask.service.quotas.admit_schedule(ref.tenant)
        at = schedule.next_at
        # What it fires for instants that passed already is as if it was enqueued now.
        jobs = 0 if at is None else len(record.due(at - 1, await ask.store.now()).now)
        await ask.service.quotas.admit(ref.tenant, ref.name, jobs=jobs, largest=len(record.payload))
    await ask.store.put_schedule(msgspec.structs.replace(schedule, queue=ref))


async def _shelves(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    if not ask.may(ALL):
        raise ForbiddenError("shelves are of no queue: wanted the scope store for all queues")
    check_name("shelf", given["shelf"])
    return await _plain(ask, call, first, given | {"shelf": SHELF + given["shelf"]})


async def _register_worker(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> Any:
    for queue in given["worker"].queues:
        _queue(ask, first[0], queue)
    return await _plain(ask, call, first, given)


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
    return await ask.store.holdup() if isinstance(ask.store, HasHoldups) else None


async def _info(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> StoreInfo:
    # Where the store is concerns nobody who asks from afar.
    return msgspec.structs.replace(await ask.store.info(), url="")


async def _turn(ask: Ask, call: Call, first: list[Any], given: dict[str, Any]) -> None:
    if not ask.service.may_turn:
        raise ForbiddenError("the clock of this service is not turned: it is that of all tenants")
    await ask.store.turn(given["by_ms"])


_SPECIAL: Final = {
    "enqueue": _enqueue,
    "spawn": _spawn,
    "fire": _fire,
    "schedules": _schedules,
    "put_schedule": _put_schedule,
    "keep_reader": _reader,
    "drop_reader": _reader,
    "queues": _queues,
    "keep": _shelves,
    "kept": _shelves,
    "shelf": _shelves,
    "drop": _shelves,
    "register_worker": _register_worker,
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


async def _rings(ask: Ask, refs: list[tuple[QueueRef, Ring]]) -> AsyncGenerator[bytes]:
    rang: asyncio.Queue[Ring] = asyncio.Queue(len(refs))
    waiting: set[Ring] = set()

    async def listen(bell: Bell, ring: Ring) -> None:
        try:
            while True:
                if await bell.wait(ALIVE) and ring not in waiting:
                    # One that was not told yet says all that a second one could.
                    waiting.add(ring)
                    rang.put_nowait(ring)
        finally:
            # A bell that fails ends the stream: whoever listens hangs it up anew.
            ask.over.set()

    async with ask.held(), AsyncExitStack() as stack:
        group = await stack.enter_async_context(_Listeners())
        for ref, ring in refs:
            group.add(listen(await stack.enter_async_context(ask.store.bell(ref, ring.topic)), ring))
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
