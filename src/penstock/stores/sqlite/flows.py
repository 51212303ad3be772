"""Flows in the file: parents that wait, children that end, and what is carried between queues."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.core import effects, flows
from penstock.core.decide import CHILD_FAILED
from penstock.core.flows import Child, ChildEnding, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Beat, Move
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.corruption import ROW_ERRORS, unreadable_record
from penstock.stores.rows import encode, more_of
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.quarantine import set_aside
from penstock.stores.sqlite.queue_transaction import QueueTransaction
from penstock.stores.values import Adoption, Relay, Spawn

_QUEUE: Final = "(SELECT n FROM queue WHERE tenant = ? AND name = ?)"


class _Ending(msgspec.Struct):
    """A child's ending as it stands in a relay entry; the result is JSON text."""

    parent: str
    child: JobRef
    state: State | None = None
    result: str | None = None


class SqliteFlows:
    """Jobs that wait for other jobs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @answers_absent
    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        """Tell parents of their children's endings."""
        return await self._backend.transact(
            queue,
            lambda transaction: [_child_ended(transaction, ending) for ending in endings],
            creates=False,
        )

    @answers_absent
    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        """Give blocked parents more children."""
        return await self._backend.transact(
            queue,
            lambda transaction: [_adopt(transaction, adoption) for adoption in adoptions],
            creates=False,
        )

    @answers_absent
    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        """Let a running job add children under its lease."""
        return await self._backend.transact(
            queue, lambda transaction: _spawn(transaction, lease, spawns), creates=False
        )

    async def children(
        self, queue: QueueRef, job: str, *, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Child]:
        """The children of a job, in the order it named them."""

        def work(connection: sqlite3.Connection) -> list[Child]:
            rows = connection.execute(
                f"SELECT child_queue, child, is_done, state, iif(?, result, NULL) FROM child "  # noqa: S608
                f"WHERE queue = {_QUEUE} AND parent = ? ORDER BY i LIMIT ? OFFSET ?",
                (results, queue.tenant, queue.name, job, -1 if limit is None else limit, after),
            )
            return [
                Child(JobRef(name, child), bool(done), state and State(state), result and result.encode())
                for name, child, done, state, result in rows
            ]

        return await self._backend.read(work)

    async def list_relay_entries(
        self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0
    ) -> list[Relay]:
        """What waits to be carried over, oldest first."""

        def work(connection: sqlite3.Connection) -> list[Relay]:
            rows = connection.execute(
                f"SELECT number, target, what, body FROM relay WHERE queue = {_QUEUE} "  # noqa: S608
                "AND number > ? ORDER BY number LIMIT ?",
                (queue.tenant, queue.name, after, limit),
            )
            return [Relay(number, target, _what(what, body)) for number, target, what, body in rows]

        return await self._backend.read(work)

    @answers_absent
    async def delete_relay_entries(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        """Forget entries that were carried over."""

        def move(transaction: QueueTransaction) -> None:
            transaction.connection.execute(
                "DELETE FROM relay WHERE queue = ? AND number IN (SELECT value FROM json_each(?))",
                (transaction.number, encode(list(numbers))),
            )

        await self._backend.transact(queue, move, creates=False)


def _child_ended(transaction: QueueTransaction, ending: ChildEnding) -> Applied | Refused:
    if not transaction.pick(Move.UNBLOCK, items=encode([[ending.parent]])):
        return _refused(transaction, ending.parent)
    row = transaction.connection.execute(
        "SELECT job.more, child.is_done FROM temp.touched JOIN job ON job.n = touched.n LEFT JOIN child "
        "ON child.queue = ?1 AND child.parent = job.id AND child.child_queue = ?2 AND child.child = ?3",
        (transaction.number, ending.child.queue, ending.child.id),
    ).fetchone()
    try:
        more, is_done = more_of(row[0]), row[1]
    except ROW_ERRORS as error:
        set_aside(transaction, [(ending.parent, unreadable_record(error))])
        return Refused(Refusal.MISSING)
    if is_done is None or is_done:
        return Refused(Refusal.STATE, State.BLOCKED)
    verdict = flows.verdict(ending.state, more.child_policy)
    transaction.connection.execute(
        "UPDATE child SET is_done = ?, state = ?, result = ? "
        "WHERE queue = ? AND parent = ? AND child_queue = ? AND child = ?",
        (
            verdict is flows.Verdict.COUNTS,
            ending.state,
            None if ending.result is None else ending.result.decode(),
            transaction.number,
            ending.parent,
            ending.child.queue,
            ending.child.id,
        ),
    )
    fails = verdict is flows.Verdict.FAILS
    if not fails and _still_waits(transaction, ending.parent):
        return Applied(State.BLOCKED)
    visible_at = transaction.now + more.delay_ms if more.run_at is None else more.run_at
    waits = visible_at > transaction.now and not fails
    state = State.FAILED if fails else State.DELAYED if waits else State.PENDING
    transaction.run(
        Move.UNBLOCK,
        "change",
        state=state,
        visible_at=visible_at if waits else None,
        reason=CHILD_FAILED,
        error=effects.child_failed(ending.child),
    )
    transaction.write_events(Move.UNBLOCK)
    transaction.notify_of(state)
    return Applied(state)


def _still_waits(transaction: QueueTransaction, parent: str) -> bool:
    row = transaction.connection.execute(
        "SELECT 1 FROM child WHERE queue = ? AND parent = ? AND NOT is_done LIMIT 1",
        (transaction.number, parent),
    ).fetchone()
    return row is not None


def _adopt(transaction: QueueTransaction, adoption: Adoption) -> Applied | Refused:
    if not transaction.pick(Move.UNBLOCK, items=encode([[adoption.parent]])):
        return _refused(transaction, adoption.parent)
    transaction.connection.executemany(
        "INSERT OR IGNORE INTO child (queue, parent, child_queue, child, i) "
        "SELECT ?1, ?2, ?3, ?4, coalesce(max(i), 0) + 1 FROM child WHERE queue = ?1 AND parent = ?2",
        [(transaction.number, adoption.parent, ref.queue, ref.id) for ref in adoption.children],
    )
    return Applied(State.BLOCKED)


def _spawn(transaction: QueueTransaction, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
    if not transaction.pick(Move.PROGRESS, items=encode([[lease.id, lease.token]])):
        return next(transaction.refuse(Move.PROGRESS, [(lease.id, lease.token)]))
    (more, cancel_requested) = transaction.connection.execute(
        "SELECT job.more, job.cancel_requested FROM temp.touched JOIN job ON job.n = touched.n"
    ).fetchone()
    children = tuple(JobRef(each.queue, each.job.id) for each in spawns)
    # Carried over in this order: the parents know of the children before these can end.
    for parent in more_of(more).parents:
        transaction.relay(parent.queue, "adopt", encode(Adoption(parent.id, children)))
    for each in spawns:
        transaction.relay(each.queue, "spawn", encode(each.job))
    return Applied(State.ACTIVE, bool(cancel_requested))


def _refused(transaction: QueueTransaction, job: str) -> Applied | Refused:
    return next(transaction.refuse(Move.UNBLOCK, [job]))


def _what(what: str, body: str) -> Any:
    match what:
        case "spawn":
            return msgspec.json.decode(body, type=NewJob)
        case "adopt":
            return msgspec.json.decode(body, type=Adoption)
        case _:
            ending = msgspec.json.decode(body, type=_Ending)
            result = None if ending.result is None else ending.result.encode()
            return ChildEnding(ending.parent, ending.child, ending.state, result)
