"""Every key that the store uses.

All keys of one queue share the hash tag `{tenant/queue}`: a script finds them in one slot of a cluster.
Names cannot contain braces, slashes or colons: no name can end its tag early or be taken for another one.
Free text (idempotency keys, concurrency keys, workers) is never part of a key, only of what stands in one.
"""

from functools import cached_property, lru_cache
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.protocol import Topic

STORE: Final = "penstock:store"
"""A hash: the schema's version and the clock's offset."""

QUEUES: Final = "penstock:queues"
"""A set of all queues as `tenant/name`."""

TURNED: Final = "penstock:turned"
"""A channel: the clock was turned."""

HIGHEST_TIER: Final = 9
LOWEST_TIER: Final = 0
TIERS: Final = range(HIGHEST_TIER, LOWEST_TIER - 1, -1)


def registry(tenant: str) -> str:
    """A hash: the tenant's queues and their numbers."""
    return f"penstock:{{{tenant}}}:queues"


class QueueKeys:
    """The keys of one queue."""

    def __init__(self, queue: QueueRef) -> None:
        start = f"penstock:{{{queue.tenant}/{queue.name}}}:"
        self.meta = start + "meta"
        """A hash: number, pause, last event number, last time, clock offset."""
        self.events = start + "events"
        """A stream with ids `<seq>-0`."""
        self.jobs = start + "jobs"
        """A sorted set of all ids by the time of their enqueue."""
        self.delayed = start + "delayed"
        """A sorted set of `<place> <id>` by visible_at."""
        self.active = start + "active"
        """A sorted set of ids by deadline."""
        self.prunable = start + "prunable"
        """A sorted set of ids by the time from which they need not be kept."""
        self.holders = start + "holders"
        """A hash: idempotency key → `<id> <digest>`, and the key's end once the record is gone."""
        self.freed = start + "freed"
        """A sorted set of the idempotency keys whose record is gone, by their end."""
        self._job = start + "job:"
        self._pending = start + "pending:"
        self._gone = start + "gone:"
        self._ended = start + "ended:"
        self._bell = start + "bell:"

    @cached_property
    def all(self) -> tuple[str, ...]:
        """What every script of the queue gets, in the order of lua/include/keys.lua."""
        return (
            self.meta,
            self.events,
            self.jobs,
            self.delayed,
            self.active,
            self.prunable,
            self.holders,
            self.freed,
            self._job,
            self._pending,
            self._gone,
            self._ended,
            self._bell,
        )

    def job(self, job: str) -> str:
        """A hash: the record."""
        return self._job + job

    def job_pattern(self) -> str:
        """What all records' keys match; nothing in a queue's name means anything in a pattern."""
        return self._job + "*"

    def job_of(self, key: bytes) -> str:
        """The id in a record's key."""
        return key.decode().removeprefix(self._job)

    def pending(self, tier: int) -> str:
        """A list of `<place> <id>`, claimed from the left."""
        return f"{self._pending}{tier}"

    def gone(self, tier: int) -> str:
        """A sorted set of the entries in a tier's list whose jobs left it otherwise than by a claim."""
        return f"{self._gone}{tier}"

    def ended(self, state: State) -> str:
        """A sorted set of the ids in one ended state by the time of their ending."""
        return self._ended + state

    def bell(self, topic: Topic) -> str:
        """A channel that is published to, without content."""
        return self._bell + topic


@lru_cache(maxsize=1024)
def keys_of(queue: QueueRef) -> QueueKeys:
    """The keys of the queue."""
    return QueueKeys(queue)
