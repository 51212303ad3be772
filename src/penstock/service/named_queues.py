"""The queues that a call of the store's protocol names beside its own: all need to be in the scopes."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from penstock.client.relay import relay
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Beat
from penstock.service import portions
from penstock.service.errors import ForbiddenError
from penstock.service.reserved_names import is_reserved
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.portions import PORTION
from penstock.stores.values import Adoption, Relay

if TYPE_CHECKING:
    from penstock.service.request import Request


def targets(call: str, given: Mapping[str, Any]) -> list[str]:
    """The queues that the call puts something into, beside its own."""
    found = _TARGETS.get(call)
    return [] if found is None else list(dict.fromkeys(found(given)))


def references(call: str, given: Mapping[str, Any]) -> list[JobRef]:
    """The jobs that the call names in its records, in any queue."""
    found = _REFERENCES.get(call)
    return [] if found is None else list(dict.fromkeys(found(given)))


async def require_named(
    request: "Request", call: str, queue: QueueRef | None, given: Mapping[str, Any]
) -> bool:
    """ForbiddenError unless the token's scopes have every queue that the call names.

    A running job names its own parents for the children that it adds; the parents can be in any queue. False
    when the call names such parents under a lease that is not held any more: nothing has to be done then.
    """
    for name in targets(call, given):
        request.require(name)
    outside = [ref for ref in references(call, given) if not _is_allowed(request, ref.queue)]
    if outside and call == "spawn" and queue is not None:
        lease: Beat = given["lease"]
        (job,) = await request.store.reads.get(queue, [lease.id])
        if job is None or job.token != lease.token:
            return False
        awaited = {ref for each in given["spawns"] for ref in each.job.awaits}
        outside = [ref for ref in outside if ref not in job.parents or ref in awaited]
    for ref in outside:
        request.require(ref.queue)
    return True


async def shown_relays(
    request: "Request", queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0
) -> list[Relay]:
    """The entries that the client can carry over itself.

    Where some are for queues that the token is not for, the service carries them, and the client sees none
    that stands behind one of those: carried first, a job could end before the job that waits for it is there.
    """
    most_bytes = request.service.limits.answer_bytes
    entries = await portions.relays(request.store.flows, queue, limit, after=after, most_bytes=most_bytes)
    if after and not request.may("*") and not await _may_carry_up_to(request, queue, after):
        return []
    if all(_may_carry(request, entry) for entry in entries):
        return entries
    await relay(request.store, queue)
    entries = await portions.relays(request.store.flows, queue, limit, after=after, most_bytes=most_bytes)
    return list(takewhile(lambda entry: _may_carry(request, entry), entries))


async def require_relayed(request: "Request", queue: QueueRef, numbers: Sequence[int]) -> None:
    """ForbiddenError for entries of other queues: a token that forgets them would keep parents waiting."""
    if request.may("*"):
        return
    left = set(numbers)
    if not left:
        return
    async for entry in _up_to(request, queue, max(left)):
        if entry.number in left and not _may_carry(request, entry):
            raise ForbiddenError(
                f"entry {entry.number} is for queue {entry.queue!r} or names a job of another one, which "
                "is not in the token's scopes: the service carries it over"
            )


async def _may_carry_up_to(request: "Request", queue: QueueRef, last: int) -> bool:
    async for entry in _up_to(request, queue, last):
        if not _may_carry(request, entry):
            return False
    return True


async def _up_to(request: "Request", queue: QueueRef, last: int) -> AsyncIterator[Relay]:
    """The entries of a queue up to and with this number."""
    after = 0
    while after < last:
        entries = await request.store.flows.list_relay_entries(queue, PORTION, after=after)
        for entry in entries:
            if entry.number <= last:
                yield entry
        if len(entries) < PORTION:
            return
        after = entries[-1].number


def _may_carry(request: "Request", entry: Relay) -> bool:
    return _is_allowed(request, entry.queue) and all(
        _is_allowed(request, ref.queue) for ref in _of_entry(entry.what)
    )


def _is_allowed(request: "Request", queue: str) -> bool:
    return request.may(queue) and not is_reserved(queue)


def _of_entry(what: NewJob | Adoption | ChildEnding) -> Iterable[JobRef]:
    match what:
        case NewJob():
            return _of_jobs([what])
        case Adoption(children=children):
            return children
        case ChildEnding(child=child):
            return (child,)


def _of_jobs(jobs: Iterable[NewJob]) -> Iterator[JobRef]:
    for new in jobs:
        yield from new.parents
        yield from new.awaits


_TARGETS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterable[str]]]] = {
    "enqueue": lambda given: (each.queue for each in given.get("spawns", ())),
    "spawn": lambda given: (each.queue for each in given["spawns"]),
    "put_schedule": lambda given: (given["schedule"].queue.name,),
}
_REFERENCES: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterable[JobRef]]]] = {
    "enqueue": lambda given: _of_jobs([*given["jobs"], *(each.job for each in given.get("spawns", ()))]),
    "spawn": lambda given: _of_jobs(each.job for each in given["spawns"]),
    "fire": lambda given: _of_jobs(given["firing"].jobs),
    "child_ended": lambda given: (each.child for each in given["endings"]),
    "adopt": lambda given: (ref for each in given["adoptions"] for ref in each.children),
}
