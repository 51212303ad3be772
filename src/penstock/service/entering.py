"""Calls of the store's protocol that take something in: jobs, schedules, queues. All within the quotas."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from penstock.client.relay import MOST_HELD, relay
from penstock.core.errors import StoreError
from penstock.core.job import NewJob, QueueRef
from penstock.core.names import check_name
from penstock.core.outcomes import Refused
from penstock.service.ask import Ask
from penstock.service.checks import check_jobs, check_spawns, check_stored
from penstock.service.naming import references, targets
from penstock.service.portions import in_portions
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.portions import PORTION
from penstock.stores.values import Spawn

OPENS: Final = frozenset({"enqueue", "open_queue", "declare", "set_key_rule", "pause", "keep_reader"})
"""Calls that open their own queue where it is new; all others are answered without one."""
_CARRIED_TO: Final = frozenset({"enqueue", "spawn", "fire"})
"""Calls whose jobs are told of in the queues of their parents, which are opened by that."""

Handler = Callable[[], Awaitable[Any]]


async def within_queues(ask: Ask, call: str, queue: QueueRef, given: Mapping[str, Any], work: Handler) -> Any:
    """The answer of the call; queues that it names and that are new have to fit into the tenant's quota.

    Those that jobs are only on their way to are opened at once, so that they count from now on.
    """
    names = [queue.name] if call in OPENS else []
    names += targets(call, given)
    if call in _CARRIED_TO:
        names += [ref.queue for ref in references(call, given)]
    if not names:
        return await work()
    async with ask.opening(names, queue.tenant) as new:
        answer = await work()
        if not _is_refused(answer):
            for name in new:
                if name != queue.name:
                    await ask.store.open_queue(QueueRef(queue.tenant, name))
        return answer


async def enqueue(ask: Ask, queue: QueueRef, given: Mapping[str, Any]) -> Any:
    """Jobs of this queue, and with them those that go by relay."""
    jobs: list[NewJob] = given["jobs"]
    spawns: list[Spawn] = given.get("spawns", [])
    await ask.yielder.run(check_jobs(jobs))
    await ask.yielder.run(check_spawns(spawns))
    async with _admitting(ask, queue, jobs, spawns):
        return await in_portions("enqueue", given, lambda some: ask.store.enqueue(queue, **some))


async def spawn(ask: Ask, queue: QueueRef, given: Mapping[str, Any]) -> Any:
    """Children of a running job."""
    await ask.yielder.run(check_spawns(given["spawns"]))
    async with _admitting(ask, queue, [], given["spawns"]):
        return await ask.store.spawn(queue, **given)


async def fire(ask: Ask, queue: QueueRef, given: Mapping[str, Any]) -> Any:
    """Jobs of a schedule."""
    await ask.yielder.run(check_jobs(given["firing"].jobs, "firing.jobs"))
    async with _admitting(ask, queue, given["firing"].jobs, []):
        return await ask.store.fire(queue, **given)


async def redrive(ask: Ask, queue: QueueRef, given: Mapping[str, Any]) -> Any:
    """Jobs that wait once more."""
    async with ask.redriving(queue, len(given["ids"])):
        return await in_portions("redrive", given, lambda some: ask.store.redrive(queue, **some))


async def put_schedule(ask: Ask, queue: QueueRef, given: Mapping[str, Any]) -> None:
    """A schedule as a record."""
    schedule = given["schedule"]
    check_name("schedule", schedule.name)
    record = await check_stored(ask, schedule)
    for each in await ask.store.schedules(queue.tenant, [schedule.name]):
        # A token for some queues puts none beside that of another, which has the name already.
        ask.require(each.queue.name)
    async with AsyncExitStack() as stack:
        if ask.service.quotas is not None:
            at = schedule.next_at
            # What it fires for instants that passed already is as if it was enqueued now.
            jobs = 0 if at is None else len(record.due(at - 1, await ask.store.now()).now)
            adding = ask.service.quotas.adding_schedule(
                queue.tenant, queue.name, schedule.name, len(record.payload), jobs=jobs
            )
            await stack.enter_async_context(adding)
        await ask.store.put_schedule(msgspec.structs.replace(schedule, queue=queue))
    ask.service.changed(queue)


@asynccontextmanager
async def _admitting(
    ask: Ask, queue: QueueRef, jobs: Sequence[NewJob], spawns: Sequence[Spawn]
) -> AsyncIterator[None]:
    """Room in the tenant's quotas for jobs of a queue and for those that go from there to other queues.

    The latter are carried over before they count no longer as on their way; what cannot be carried over yet
    is counted with the next ones.
    """
    if ask.service.quotas is None:
        yield
        return
    sizes: dict[str, list[int]] = {}
    for name, new in [*((queue.name, new) for new in jobs), *((each.queue, each.job) for each in spawns)]:
        sizes.setdefault(name, []).append(len(new.payload))

    async def pending() -> Mapping[str, int]:
        return await _waiting_to_be_carried(ask, queue) if spawns else {}

    async with ask.service.quotas.admitting(queue.tenant, sizes, pending):
        yield
        if spawns:
            with suppress(StoreError):
                await relay(ask.store, queue, limit=max(RELAY_LIMIT, 2 * len(spawns)))


async def _waiting_to_be_carried(ask: Ask, queue: QueueRef) -> Counter[str]:
    """How many jobs this queue has for others that are not there yet, by queue."""
    found: Counter[str] = Counter()
    after = 0
    while sum(found.values()) < MOST_HELD:
        entries = await ask.store.relays(queue, PORTION, after=after)
        found.update(entry.queue for entry in entries if isinstance(entry.what, NewJob))
        if len(entries) < PORTION:
            break
        after = entries[-1].number
    return found


def _is_refused(answer: Any) -> bool:
    if isinstance(answer, list):
        return bool(answer) and all(isinstance(each, Refused) for each in answer)
    return answer is False or isinstance(answer, Refused)
