"""Every key that the store uses.

All keys of one queue share the hash tag `{tenant/queue}`: a script finds them in one slot of a cluster.
Names cannot contain braces, slashes or colons: no name can end its tag early or be taken for another one.
Free text (idempotency keys, concurrency keys, workers) is never part of a key, only of what stands in one.
"""

from functools import cached_property, lru_cache
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.values import Topic

STORE: Final = "penstock:store"
"""A hash: the schema's version and the clock's offset."""

QUEUES: Final = "penstock:queues"
"""A set of all queues as `tenant/name`."""

HIGHEST_TIER: Final = 9
LOWEST_TIER: Final = 0
TIERS: Final = range(HIGHEST_TIER, LOWEST_TIER - 1, -1)


def turned(database: int) -> str:
    """A channel: the clock was turned."""
    return f"penstock:turned:{database}"


def registry(tenant: str) -> str:
    """A hash: the tenant's queues and their numbers; under `*` the highest one that was released."""
    return f"penstock:{{{tenant}}}:queues"


def deleted(tenant: str) -> str:
    """A hash: under `last_us` the newest time that a deleted queue of the tenant used, in microseconds."""
    return f"penstock:{{{tenant}}}:deleted"


def key_value_keys(tenant: str, namespace: str) -> tuple[str, str, str]:
    """A hash: name → `<version> <body>`; a sorted set of the names; a hash: the tenant's last version."""
    start = f"penstock:{{{tenant}}}:"
    return f"{start}shelf:{namespace}", f"{start}names:{namespace}", f"{start}shelves"


def meta_of(queue: QueueRef) -> str:
    """The key of a queue's metadata: the others of the queue differ from it in the last word."""
    return f"penstock:{{{queue.tenant}/{queue.name}}}:meta"


KEY_NAMES: Final = (
    "meta",
    "events",
    "records",
    "payloads",
    "results",
    "errors",
    "progress",
    "jobs",
    "blocked",
    "delayed",
    "active",
    "prunable",
    "holders",
    "freed",
    "kinds",
    "windows",
    "lanes",
    "ready",
    "held",
    "cooling",
    "relays",
    "schedules",
    "bodies",
    "due",
    "readers",
    "quarantine",
    "pending",
    "gone",
    "ended",
    "children",
    "outcomes",
    "channel",
)
"""The last words of a queue's keys, in the order in which scripts get them. Scripts complete the last six."""
OWN_KEYS: Final = KEY_NAMES.index("pending")
"""So many of them are whole keys."""
_ENDINGS: Final = {name: f"{name}:" for name in KEY_NAMES[OWN_KEYS:-1]}


class QueueKeys:
    """The keys of one queue."""

    def __init__(self, queue: QueueRef) -> None:
        self.meta = meta_of(queue)
        """A hash: number, pause, declaration, last event number, last time, clock offset, counters."""
        start = self._start = self.meta.removesuffix("meta")
        self.events = start + "events"
        """A stream with ids `<seq>-0`."""
        self.records = start + "records"
        """A hash: id → record, without what is large."""
        self.payloads = start + "payloads"
        self.results = start + "results"
        self.errors = start + "errors"
        """A hash: id → what follows the first line of its error."""
        self.progress = start + "progress"
        self.jobs = start + "jobs"
        """A sorted set of all ids by the time of their enqueue."""
        self.blocked = start + "blocked"
        """A sorted set of ids by the time of their enqueue."""
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
        self.kinds = start + "kinds"
        """A hash: what a job is the only one of → `<id> <since>`."""
        self.windows = start + "windows"
        """A sorted set of the kinds whose job's record is gone, by the time they need not be kept."""
        self.lanes = start + "lanes"
        """A hash: concurrency key → its counts, turn, rate and rule."""
        self.ready = start + "ready"
        """A sorted set of `<joined> <key>` by turn: the keys that could be served now."""
        self.held = start + "held"
        """The same by the time until which their rate holds them back."""
        self.cooling = start + "cooling"
        """A sorted set of keys without jobs by the time until which their rate remembers them."""
        self.relays = start + "relays"
        """A stream with ids `<number>-0`: what other queues are to take in."""
        self.schedules = start + "schedules"
        """A hash: name → next and last instant, and whether it is paused."""
        self.bodies = start + "bodies"
        """A hash: name → the schedule itself."""
        self.due = start + "due"
        """A sorted set of the names of schedules by their next instant."""
        self.readers = start + "readers"
        """A hash: reader of the events → `<kept until> <cursor>`."""
        self.quarantine = start + "quarantine"
        """A hash: what somebody has damaged and the store has set aside, by id; see quarantine.lua."""
        self._pending = start + "pending:"
        self._gone = start + "gone:"
        self._ended = start + "ended:"
        self._children = start + "children:"
        self._outcomes = start + "outcomes:"
        self._channels = start + "bell:"

    def all(self, database: int) -> tuple[bytes, ...]:
        """What every script of the queue gets, in the order of KEY_NAMES."""
        return (*self._in_every_database, b"%s%d:" % (self._channels.encode(), database))

    @cached_property
    def _in_every_database(self) -> tuple[bytes, ...]:
        return tuple((self._start + _ENDINGS.get(name, name)).encode() for name in KEY_NAMES[:-1])

    def pending(self, line: int | str) -> str:
        """A list of `<place> <id>`, claimed from the left: a tier's, or that of the lane with a number."""
        return f"{self._pending}{line}"

    def gone(self, line: int | str) -> str:
        """A sorted set of the entries in such a list whose jobs left it otherwise than by a claim."""
        return f"{self._gone}{line}"

    def ended(self, state: State) -> str:
        """A sorted set of the ids in one ended state by the time of their ending."""
        return self._ended + state

    def children(self, parent: str) -> str:
        """A hash: `<queue>/<id>` of a child → its number, whether it is done, its state."""
        return self._children + parent

    def outcomes(self, parent: str) -> str:
        """A hash: `<queue>/<id>` of a child → its result."""
        return self._outcomes + parent

    def channel(self, topic: Topic, database: int) -> str:
        """A channel that is published to, without content. Unlike keys, all databases share channels."""
        return f"{self._channels}{database}:{topic}"


def ready_channels(tenant: str, database: int) -> str:
    """A pattern: the channels on which the queues of a tenant tell that a job became claimable."""
    return f"penstock:{{{tenant}/*}}:bell:{database}:{Topic.READY}"


def queue_of_channel(channel: str) -> str:
    """The name of the queue that a channel is of."""
    return channel[channel.index("/") + 1 : channel.index("}")]


def lane_line(number: int) -> str:
    """The list of a key whose lane has this number."""
    return f"k{number}"


@lru_cache(maxsize=1024)
def keys_of(queue: QueueRef) -> QueueKeys:
    """The keys of the queue."""
    return QueueKeys(queue)
