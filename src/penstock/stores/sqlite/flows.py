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
from penstock.stores.damaged import READING, unreadable_record
from penstock.stores.rows import encode, more_of
from penstock.stores.sqlite.quarantine import set_aside
from penstock.stores.sqlite.turn import Turn
from penstock.stores.sqlite.turns import Turns
from penstock.stores.values import Adoption, Relay, Spawn

_QUEUE: Final = "(SELECT n FROM queue WHERE tenant = ? AND name = ?)"


class _Ending(msgspec.Struct):
    """A child's ending as it stands in a relay entry; the result is JSON text."""

    parent: str
    child: JobRef
    state: State | None = None
    result: str | None = None


class SqliteFlows(Turns):
    """Jobs that wait for other jobs."""

    @answers_absent
    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        """Tell parents of their children's endings."""
        return await self._turn(
            queue, lambda turn: [_child_ended(turn, ending) for ending in endings], makes=False
        )

    @answers_absent
    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        """Give blocked parents more children."""
        return await self._turn(
            queue, lambda turn: [_adopt(turn, adoption) for adoption in adoptions], makes=False
        )

    @answers_absent
    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        """Let a running job add children under its lease."""
        return await self._turn(queue, lambda turn: _spawn(turn, lease, spawns), makes=False)

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

        return await self._read(work)

    async def relays(self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0) -> list[Relay]:
        """What waits to be carried over, oldest first."""

        def work(connection: sqlite3.Connection) -> list[Relay]:
            rows = connection.execute(
                f"SELECT number, target, what, body FROM relay WHERE queue = {_QUEUE} "  # noqa: S608
                "AND number > ? ORDER BY number LIMIT ?",
                (queue.tenant, queue.name, after, limit),
            )
            return [Relay(number, target, _what(what, body)) for number, target, what, body in rows]

        return await self._read(work)

    @answers_absent
    async def relayed(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        """Forget entries that were carried over."""

        def move(turn: Turn) -> None:
            turn.connection.execute(
                "DELETE FROM relay WHERE queue = ? AND number IN (SELECT value FROM json_each(?))",
                (turn.number, encode(list(numbers))),
            )

        await self._turn(queue, move, makes=False)


def _child_ended(turn: Turn, ending: ChildEnding) -> Applied | Refused:
    if not turn.pick(Move.UNBLOCK, items=encode([[ending.parent]])):
        return _refused(turn, ending.parent)
    row = turn.connection.execute(
        "SELECT job.more, child.is_done FROM temp.touched JOIN job ON job.n = touched.n LEFT JOIN child "
        "ON child.queue = ?1 AND child.parent = job.id AND child.child_queue = ?2 AND child.child = ?3",
        (turn.number, ending.child.queue, ending.child.id),
    ).fetchone()
    try:
        more, is_done = more_of(row[0]), row[1]
    except READING as error:
        set_aside(turn, [(ending.parent, unreadable_record(error))])
        return Refused(Refusal.MISSING)
    if is_done is None or is_done:
        return Refused(Refusal.STATE, State.BLOCKED)
    verdict = flows.verdict(ending.state, more.child_policy)
    turn.connection.execute(
        "UPDATE child SET is_done = ?, state = ?, result = ? "
        "WHERE queue = ? AND parent = ? AND child_queue = ? AND child = ?",
        (
            verdict is flows.Verdict.COUNTS,
            ending.state,
            None if ending.result is None else ending.result.decode(),
            turn.number,
            ending.parent,
            ending.child.queue,
            ending.child.id,
        ),
    )
    fails = verdict is flows.Verdict.FAILS
    if not fails and _still_waits(turn, ending.parent):
        return Applied(State.BLOCKED)
    visible_at = turn.now + more.delay_ms if more.run_at is None else more.run_at
    waits = visible_at > turn.now and not fails
    state = State.FAILED if fails else State.DELAYED if waits else State.PENDING
    turn.run(
        Move.UNBLOCK,
        "change",
        state=state,
        visible_at=visible_at if waits else None,
        reason=CHILD_FAILED,
        error=effects.child_failed(ending.child),
    )
    turn.tell(Move.UNBLOCK)
    turn.ring(state)
    return Applied(state)


def _still_waits(turn: Turn, parent: str) -> bool:
    row = turn.connection.execute(
        "SELECT 1 FROM child WHERE queue = ? AND parent = ? AND NOT is_done LIMIT 1", (turn.number, parent)
    ).fetchone()
    return row is not None


def _adopt(turn: Turn, adoption: Adoption) -> Applied | Refused:
    if not turn.pick(Move.UNBLOCK, items=encode([[adoption.parent]])):
        return _refused(turn, adoption.parent)
    turn.connection.executemany(
        "INSERT OR IGNORE INTO child (queue, parent, child_queue, child, i) "
        "SELECT ?1, ?2, ?3, ?4, coalesce(max(i), 0) + 1 FROM child WHERE queue = ?1 AND parent = ?2",
        [(turn.number, adoption.parent, ref.queue, ref.id) for ref in adoption.children],
    )
    return Applied(State.BLOCKED)


def _spawn(turn: Turn, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
    if not turn.pick(Move.PROGRESS, items=encode([[lease.id, lease.token]])):
        return next(turn.refuse(Move.PROGRESS, [(lease.id, lease.token)]))
    (more, cancel_requested) = turn.connection.execute(
        "SELECT job.more, job.cancel_requested FROM temp.touched JOIN job ON job.n = touched.n"
    ).fetchone()
    children = tuple(JobRef(each.queue, each.job.id) for each in spawns)
    # Carried over in this order: the parents know of the children before these can end.
    for parent in more_of(more).parents:
        turn.relay(parent.queue, "adopt", encode(Adoption(parent.id, children)))
    for each in spawns:
        turn.relay(each.queue, "spawn", encode(each.job))
    return Applied(State.ACTIVE, bool(cancel_requested))


def _refused(turn: Turn, job: str) -> Applied | Refused:
    return next(turn.refuse(Move.UNBLOCK, [job]))


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
