"""Calls of the store protocol that add jobs, schedules or queues, within the quotas of the tenant."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from penstock.client.relay import relay
from penstock.core.errors import StoreError
from penstock.core.job import NewJob, QueueRef
from penstock.core.names import check_name
from penstock.core.outcomes import Refused
from penstock.service.checks import check_jobs, check_spawns, check_stored
from penstock.service.named_queues import references, targets
from penstock.service.portions import in_portions
from penstock.service.request import Request
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.values import Spawn

OPENS: Final = frozenset(
    {"enqueue", "open_queue", "declare", "set_key_rule", "pause_queue", "register_reader"}
)
"""Calls that open their own queue where it is new; all others are answered without one."""
_CARRIED_TO: Final = frozenset({"enqueue", "spawn", "fire"})
"""Calls whose jobs are told of in the queues of their parents, which are opened by that."""

Handler = Callable[[], Awaitable[Any]]


async def within_queues(
    request: Request, call: str, queue: QueueRef, given: Mapping[str, Any], work: Handler
) -> Any:
    """The answer of the call; queues that it names and that are new have to fit into the tenant's quota.

    Those that jobs are only on their way to are opened at once, so that they count from now on.
    """
    names = [queue.name] if call in OPENS else []
    names += targets(call, given)
    if call in _CARRIED_TO:
        names += [ref.queue for ref in references(call, given)]
    if not names:
        return await work()
    async with request.opening(names, queue.tenant) as new:
        answer = await work()
        if not _is_refused(answer):
            for name in new:
                if name != queue.name:
                    await request.store.queues.open_queue(QueueRef(queue.tenant, name))
        return answer


async def enqueue(request: Request, queue: QueueRef, given: Mapping[str, Any]) -> Any:
    """Enqueue jobs of this queue, and jobs that relay entries carry to others."""
    jobs: list[NewJob] = given["jobs"]
    spawns: list[Spawn] = given.get("spawns", [])
    await request.yielder.run(check_jobs(jobs))
    await request.yielder.run(check_spawns(spawns))
    async with _admitting(request, queue, jobs, spawns):
        return await in_portions("enqueue", given, lambda some: request.store.moves.enqueue(queue, **some))


async def spawn(request: Request, queue: QueueRef, given: Mapping[str, Any]) -> Any:
    """Spawn children of a running job."""
    await request.yielder.run(check_spawns(given["spawns"]))
    async with _admitting(request, queue, [], given["spawns"]):
        return await request.store.flows.spawn(queue, **given)


async def fire(request: Request, queue: QueueRef, given: Mapping[str, Any]) -> Any:
    """Fire a schedule."""
    await request.yielder.run(check_jobs(given["firing"].jobs, "firing.jobs"))
    async with _admitting(request, queue, given["firing"].jobs, []):
        return await request.store.schedules.fire(queue, **given)


async def redrive(request: Request, queue: QueueRef, given: Mapping[str, Any]) -> Any:
    """Redrive jobs."""
    async with request.redriving(queue, len(given["ids"])):
        return await in_portions("redrive", given, lambda some: request.store.moves.redrive(queue, **some))


async def put_schedule(request: Request, queue: QueueRef, given: Mapping[str, Any]) -> None:
    """Put a schedule, given as a record."""
    schedule = given["schedule"]
    check_name("schedule", schedule.name)
    record = await check_stored(request, schedule)
    for each in await request.store.schedules.list_schedules(queue.tenant, [schedule.name]):
        # A token for some queues puts none beside that of another, which has the name already.
        request.require(each.queue.name)
    async with AsyncExitStack() as stack:
        if request.service.quotas is not None:
            at = schedule.next_at
            # What it fires for instants that passed already is as if it was enqueued now.
            jobs = 0 if at is None else len(record.due(at - 1, await request.store.clock.now()).now)
            adding = request.service.quotas.adding_schedule(
                queue.tenant, queue.name, schedule.name, len(record.payload), jobs=jobs
            )
            await stack.enter_async_context(adding)
        await request.store.schedules.put_schedule(msgspec.structs.replace(schedule, queue=queue))
    request.service.changed(queue)


@asynccontextmanager
async def _admitting(
    request: Request, queue: QueueRef, jobs: Sequence[NewJob], spawns: Sequence[Spawn]
) -> AsyncIterator[None]:
    """Room in the tenant's quotas for jobs of a queue and for those that go from there to other queues.

    The latter are carried over before they count no longer as on their way; what cannot be carried over yet
    is counted with the next ones, from whichever queue they come.
    """
    if request.service.quotas is None:
        yield
        return
    sizes: dict[str, list[int]] = {}
    for name, new in [*((queue.name, new) for new in jobs), *((each.queue, each.job) for each in spawns)]:
        sizes.setdefault(name, []).append(len(new.payload))

    backlogs, is_bounded = request.service.backlogs, False

    async def pending() -> Mapping[str, int]:
        nonlocal is_bounded
        is_bounded = True
        return await backlogs.on_their_way(queue.tenant, queue.name if spawns else None)

    async with request.service.quotas.admitting(queue.tenant, sizes, pending):
        yield
        if spawns:
            with suppress(StoreError):
                await relay(request.store, queue, limit=max(RELAY_LIMIT, 2 * len(spawns)))
                if is_bounded:
                    await backlogs.count(queue)


def _is_refused(answer: Any) -> bool:
    if isinstance(answer, list):
        return bool(answer) and all(isinstance(each, Refused) for each in answer)
    return answer is False or isinstance(answer, Refused)
