"""Flows in the database: parents that wait, children that end, and what is carried between queues."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.core import flows
from penstock.core.decide import CHILD_FAILED
from penstock.core.effects import child_failed
from penstock.core.errors import StoreError
from penstock.core.flows import Child, ChildEnding, ChildPolicy, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Beat, Move
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.postgres.backend import Backend, rounds
from penstock.stores.postgres.codec import spawn_columns
from penstock.stores.postgres.engine import Connection
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.queue_transaction import QueueTransaction
from penstock.stores.postgres.renumbering import StaleNumberError, renumbers
from penstock.stores.rows import More, encode
from penstock.stores.values import Adoption, Relay, Spawn

_CHILDREN: Final = """
SELECT child_queue, child, is_done, state, CASE WHEN $5::boolean THEN result END FROM penstock.child
WHERE queue = $1 AND parent = $2
ORDER BY i
OFFSET $3::bigint
LIMIT $4::bigint
"""
_LIST_RELAY_ENTRIES: Final = """
SELECT number, target, what, body FROM penstock.relay WHERE queue = $1 AND number > $3::bigint
ORDER BY number
LIMIT $2::bigint
"""
_HAS_KEYS: Final = "SELECT has_keys FROM penstock.queue WHERE n = $1"
_DELETE_RELAY_ENTRIES: Final = "DELETE FROM penstock.relay WHERE queue = $1 AND number = ANY($2::bigint[])"


class _Ending(msgspec.Struct):
    """A child's ending as a relay entry has it; the result is JSON text."""

    parent: str
    child: JobRef
    state: State | None = None
    result: str | None = None


class PostgresFlows:
    """The part `Flows`: jobs that wait for other jobs."""

    def __init__(self, backend: Backend, quarantine: PostgresQuarantine) -> None:
        self._backend = backend
        self._quarantine = quarantine

    @answers_absent
    @renumbers
    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        """Tell parents of their children's endings, in the order given."""
        number = await self._backend.require_number(queue)
        out: list[Applied | Refused] | None = None
        while out is None:
            try:
                async with self._backend.queue_transaction(
                    number, holds=number in self._backend.keyed
                ) as transaction:
                    out = await self.unblock(transaction, endings)
            except StoreError as error:
                if not await self._quarantine.mend(
                    queue, number, error, [ending.parent for ending in endings]
                ):
                    raise
        self._backend.notify_outcomes(queue, out)
        return out

    async def unblock(
        self, transaction: QueueTransaction, endings: Sequence[ChildEnding]
    ) -> list[Applied | Refused] | None:
        """Tell parents as part of a transaction; None where it has to hold the queue's row, and does not."""
        await self.lock(transaction.number, [ending.parent for ending in endings], transaction.connection)
        # From now on the mode of the queue cannot change under parents that wait.
        [(has_keys,)] = await self._backend.query(_HAS_KEYS, transaction.number, on=transaction.connection)
        if has_keys and not transaction.holds:
            self._backend.keyed.add(transaction.number)
            return None
        out: list[Applied | Refused] = []
        for indexes in rounds([f"{ending.parent} {ending.child}" for ending in endings]):
            items = [_ending_item(endings[index]) for index in indexes]
            columns = [list(column) for column in zip(*items, strict=True)]
            rows = await transaction.run_move(Move.UNBLOCK, *columns, More().child_policy, CHILD_FAILED)
            out += [_answer(state, is_applied=is_applied) for is_applied, state, _ in rows]
            transaction.touch(Move.UNBLOCK, [key for _, _, key in rows])
        return out

    @answers_absent
    @renumbers
    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        """Give blocked parents more children."""
        number = await self._backend.require_number(queue)
        parents = [adoption.parent for adoption in adoptions]
        async with self._backend.engine.transaction() as connection:
            await self.lock(number, parents, connection)
            rows = await self._backend.run_shared("refused", number, parents, on=connection)
            if any(has_keys is None for *_, has_keys in rows):
                self._backend.forget_all()
                raise StaleNumberError
            states = [row[0] for row in rows]
            children = [
                (adoption.parent, *msgspec.structs.astuple(ref))
                for adoption, state in zip(adoptions, states, strict=True)
                if state == State.BLOCKED
                for ref in adoption.children
            ]
            if children:
                columns = [list(column) for column in zip(*children, strict=True)]
                await self._backend.run_shared("adopt", number, *columns, on=connection)
        return [_answer(state, is_applied=state == State.BLOCKED) for state in states]

    @answers_absent
    @renumbers
    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        """Let a running job add children under its lease."""
        number = await self._backend.require_number(queue)
        children = encode([JobRef(each.queue, each.job.id) for each in spawns])
        rows = await self._backend.run_shared(
            "spawn", number, lease.id, lease.token, children, *spawn_columns(spawns)
        )
        if rows:
            return Applied(State.ACTIVE, rows[0][0])
        [(state, *_, has_keys)] = await self._backend.run_shared("refused", number, [lease.id])
        if has_keys is None:
            self._backend.forget_all()
            raise StaleNumberError
        return Refused(Refusal.LOST, None if state is None else State(state))

    @renumbers
    async def children(
        self, queue: QueueRef, job: str, *, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Child]:
        """The children of a job, in the order it named them."""
        rows = await self._backend.read_queue(queue, _CHILDREN, job, after, limit, results)
        return [
            Child(JobRef(name, child), is_done, state and State(state), result and result.encode())
            for name, child, is_done, state, result in rows
        ]

    @renumbers
    async def list_relay_entries(
        self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0
    ) -> list[Relay]:
        """The entries that wait to be carried over, oldest first."""
        rows = await self._backend.read_queue(queue, _LIST_RELAY_ENTRIES, limit, after)
        return [Relay(n, target, _entry_of(what, body)) for n, target, what, body in rows]

    @answers_absent
    async def delete_relay_entries(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        """Forget entries that were carried over."""
        await self._backend.query(
            _DELETE_RELAY_ENTRIES, await self._backend.require_number(queue), list(numbers)
        )

    async def lock(self, number: int, jobs: Sequence[str], connection: Connection) -> None:
        await self._backend.run_shared("lock_jobs", number, list(jobs), on=connection)


def _ending_item(ending: ChildEnding) -> tuple[Any, ...]:
    verdicts = {policy: flows.verdict(ending.state, policy) for policy in ChildPolicy}
    result = None if ending.result is None else ending.result.decode()
    item = (ending.parent, ending.child.queue, ending.child.id, ending.state, result)
    return (*item, encode(verdicts), child_failed(ending.child))


def _answer(state: str | None, *, is_applied: bool) -> Applied | Refused:
    if state is None:
        return Refused(Refusal.MISSING)
    return Applied(State(state)) if is_applied else Refused(Refusal.STATE, State(state))


def _entry_of(what: str, body: str) -> Any:
    match what:
        case "spawn":
            return msgspec.json.decode(body, type=NewJob)
        case "adopt":
            return msgspec.json.decode(body, type=Adoption)
        case _:
            ending = msgspec.json.decode(body, type=_Ending)
            result = None if ending.result is None else ending.result.encode()
            return ChildEnding(ending.parent, ending.child, ending.state, result)
