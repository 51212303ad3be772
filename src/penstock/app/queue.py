"""A queue as an app declares it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypedDict, Unpack

from msgspec.structs import replace

from penstock.app.decorator import Register, TaskDecorator
from penstock.client.job_filter import JobFilter
from penstock.client.queue_administration import QueueAdministration, check_states
from penstock.core.errors import OptionError
from penstock.core.job import Job, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode, Rate, check_declaration
from penstock.core.names import check_key
from penstock.core.states import LIVE, REDRIVABLE, State
from penstock.core.stats import DEFAULT_SINCE_MS, LONGEST_SINCE_MS, QueueStats
from penstock.stores.values import KeyInfo
from penstock.tasks.call import Call, Sender
from penstock.tasks.execution import Execution, TaskOptions
from penstock.tasks.handle import JobHandle
from penstock.tasks.options import JobOptions, Seconds, milliseconds
from penstock.tasks.registry import Registry


class QueueOptions(TaskOptions, total=False):
    """What an app can say of a queue: its mode and limits, and defaults for its tasks and their jobs."""

    mode: Mode | Literal["global", "keyed", "dynamic"]
    """How jobs share the workers; where it is keyed or dynamic, each job has a key and keys take turns."""
    key_limit: int
    """How many jobs of one key run at once."""
    max_active: int
    """How many jobs run at once, over all workers."""
    max_length: int
    """How many jobs may wait; more are refused."""
    rate: Rate
    """How fast jobs start."""
    key_rate: Rate
    """How fast jobs of one key start."""
    version: int
    """Raise it to change what is said here of a queue that exists."""
    lease: float
    """Seconds that this app's workers hold a job of the queue for, until they renew it."""


QUEUE_ONLY: Final = frozenset(QueueOptions.__annotations__) - frozenset(TaskOptions.__annotations__)


def declaration_of(name: str, given: Mapping[str, Any], defaults: JobOptions) -> Declaration | None:
    """What the options say of the queue itself; None where they say nothing."""
    said = {field: value for field, value in given.items() if field in QUEUE_ONLY and value is not None}
    # The workers' own affair, and not the same in every process.
    said.pop("lease", None)
    if not said:
        return None
    try:
        said["mode"] = Mode(said.get("mode", Mode.GLOBAL))
    except ValueError:
        raise OptionError("mode", said["mode"], f"one of {', '.join(Mode)}") from None
    for field in ("rate", "key_rate"):
        if field in said and not isinstance(said[field], Rate):
            raise OptionError(field, said[field], "a Rate, such as Rate.per_second(5, burst=10)")
    declaration = check_declaration(Declaration(**said))
    if declaration.mode.has_keys and defaults.priority is not None:
        wanted = f"none: in queue {name!r}, which is {declaration.mode}, keys take turns"
        raise OptionError("priority", defaults.priority, wanted)
    return declaration


class JobMatch(TypedDict, total=False):
    """Which jobs of a queue are meant: those for which every field that is given holds.

    `since` is compared with the ending where all `states` are endings, and else with the enqueue. `where` is
    an SQL condition over a job's columns, such as "error like 'Timeout%'".
    """

    states: Iterable[State | str]
    task: str
    key: str
    since: datetime
    reason: str
    fingerprint: str
    where: str


class QueueSender(Sender, Protocol):
    """Whoever also looks after whole queues."""

    async def upkeep(self, queue: str) -> QueueAdministration: ...

    async def delete_queue(self, queue: str, *, purge: bool = False) -> int: ...


class QueueHandle:
    """A declared queue. `defaults` hold for its jobs where neither task nor call says otherwise.

    `declaration` is what the app says of its mode and limits. It is written or compared when the app first
    uses the queue, and when a worker starts; None leaves the queue as it is.

    >>> from penstock import Penstock
    >>> mail = Penstock("memory://").queue("mail", priority="high")
    >>> @mail.task(timeout=30)
    ... async def send(to: str) -> str:
    ...     return f"sent to {to}"
    >>> send
    <Task send in mail>
    """

    def __init__(
        self,
        ref: QueueRef,
        defaults: JobOptions,
        declaration: Declaration | None,
        *,
        lease: float | None,
        execution: Execution,
        register: Register,
        registry: Registry,
        sender: QueueSender,
    ) -> None:
        self.ref = ref
        self.defaults = defaults
        self.declaration = declaration
        self.lease = lease
        self.execution = execution
        self.task = TaskDecorator(register)
        self._registry = registry
        self._sender = sender

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.ref.name

    async def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue a call of a task of this app into this queue, whichever queue it usually goes to.

        UnknownTaskError when the app has no such task; for tasks of other programs there is `app.by_name`.
        """
        known = self._registry.require(task)
        call: Call[Any] = known.call(*args, **kwargs)
        return await self._sender.send(replace(call, queue=self.name))

    async def counts(self) -> dict[State, int]:
        """Jobs per state, zeros included."""
        return await (await self._upkeep()).counts()

    async def stats(self, *, since: Seconds = DEFAULT_SINCE_MS / 1000) -> QueueStats:
        """What happened in the last `since` seconds: jobs in and out, retries, how long they waited and ran.

        In all, by task, and by the minute, or by the hour where that is longer than six hours. A time over
        30 days is an OptionError. Percentiles are off by at most 1/32.
        """
        since_ms = milliseconds("since", since)
        if not 0 < since_ms <= LONGEST_SINCE_MS:
            raise OptionError("since", since, "more than 0 s and at most 30 days")
        return await (await self._upkeep()).stats(since_ms)

    async def keys(self) -> list[KeyInfo]:
        """Keys with waiting or running jobs, or with a limit or weight of their own."""
        return await (await self._upkeep()).keys()

    async def set_key(self, key: str, *, limit: int | None = None, weight: int | None = None) -> None:
        """Give a key its own limit (dynamic queues) and its weight among the others.

        A key of weight 3 gets three turns where others get one. What is not named stays.
        """
        if limit is None and weight is None:
            raise OptionError("key", key, "a limit or a weight beside it; reset_key takes its rule back")
        await (await self._upkeep()).set_key(check_key("key", key), KeyRule(limit, weight))

    async def reset_key(self, key: str) -> None:
        """Treat a key like all others again."""
        await (await self._upkeep()).set_key(check_key("key", key), None)

    async def pause(
        self, *, reason: str | None = None, by: str | None = None, for_: Seconds | None = None
    ) -> None:
        """Stop claims, for so many seconds if given; what runs goes on."""
        for_ms = None if for_ is None else milliseconds("for_", for_)
        await (await self._upkeep()).pause(reason, by, for_ms)

    async def resume(self) -> None:
        """Allow claims again."""
        await (await self._upkeep()).resume()

    async def purge(self, states: Iterable[State | str] | None = None) -> int:
        """Delete jobs that are not running, those that wait if no states are given; how many that were."""
        return await (await self._upkeep()).purge(states)

    async def jobs(self, *, limit: int = 100, **match: Unpack[JobMatch]) -> list[Job]:
        """Jobs for which every field of `match` holds, the newest first: by ending if all states are endings.

        Their results are left out, and their payloads unless `where` is given.
        """
        return await (await self._upkeep()).jobs(_filter(match, frozenset(State), frozenset()), limit)

    async def retry_all(self, *, limit: int | None = None, **match: Unpack[JobMatch]) -> int:
        """Run jobs again, in their order, with all their attempts; how many there were.

        Those that are dead or failed, unless `states` says otherwise.
        """
        wanted = _filter(match, REDRIVABLE, frozenset({State.DEAD, State.FAILED}))
        return await (await self._upkeep()).retry_all(wanted, limit)

    async def cancel_all(self, *, limit: int | None = None, **match: Unpack[JobMatch]) -> int:
        """Cancel live jobs, and ask those to stop that run; how many there were."""
        return await (await self._upkeep()).cancel_all(_filter(match, LIVE, LIVE), limit)

    async def delete_all(self, *, limit: int | None = None, **match: Unpack[JobMatch]) -> int:
        """Delete jobs that are not running and in one of `states`; how many there were."""
        if "states" not in match:
            raise OptionError("states", None, "some states to delete jobs in, such as ['failed']")
        deletable = frozenset(State) - {State.ACTIVE}
        return await (await self._upkeep()).delete_all(_filter(match, deletable, deletable), limit)

    async def delete(self, *, purge: bool = False) -> int:
        """Delete the queue; with `purge` its ended jobs first, of which the answer says how many.

        QueueNotEmptyError when jobs, schedules or relay entries are still there; UnknownQueueError when there
        is no such queue. Its limits, idempotency keys and events go with it. What is enqueued later, and a
        worker that serves the queue, makes it anew.
        """
        return await self._sender.delete_queue(self.name, purge=purge)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until nothing in the queue is live; ResultTimeoutError when that takes longer."""
        await (await self._upkeep()).drain(timeout)

    async def _upkeep(self) -> QueueAdministration:
        return await self._sender.upkeep(self.name)

    def __repr__(self) -> str:
        return f"<QueueHandle {self.ref}>"


def _filter(match: JobMatch, able: frozenset[State], default: frozenset[State]) -> JobFilter:
    """The filter of a call; OptionError names the field that is wrong."""
    states = check_states(match["states"]) if "states" in match else default
    for state in State:
        if state in states - able:
            wanted = f"some of {', '.join(each for each in State if each in able)}"
            raise OptionError("states", str(state), wanted)
    since, where = match.get("since"), match.get("where")
    if since is not None and getattr(since, "tzinfo", None) is None:
        raise OptionError("since", since, "a datetime with a time zone")
    condition = None
    if where is not None:
        from penstock.client.where import Where

        condition = Where(where)
    return JobFilter(
        states=states,
        task=match.get("task"),
        key=match.get("key"),
        since=None if since is None else int(since.timestamp() * 1000),
        reason=match.get("reason"),
        fingerprint=match.get("fingerprint"),
        where=condition,
    )
