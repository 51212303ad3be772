"""The promises that a history is held to, and what the checker says about them."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule
from penstock.core.states import State


class Rule(StrEnum):
    """One promise. Its docstring, also under `promise`, says it in a sentence."""

    promise: str

    def __new__(cls, value: str, promise: str) -> "Rule":
        rule = str.__new__(cls, value)
        rule._value_ = value
        rule.promise = rule.__doc__ = promise
        return rule

    # The log

    SEQ_GAP = "seq-gap", "The numbers of a queue's events have no gaps."
    SEQ_TWICE = "seq-twice", "No event stands in the log twice, and no number is given twice."
    SEQ_ORDER = "seq-order", "Events stand in the order of their numbers."
    TIME_BACK = (
        "time-back",
        "Time does not go back within a queue, but where the clock was set back by over 60 s.",
    )
    UNKNOWN = "unknown", "Every event can be read by this version."
    NOTHING_READ = "nothing-read", "Where jobs were produced, run or kept, there are events to read."

    # The life of a job

    NO_ENQUEUE = "no-enqueue", "The first event of a job is its enqueue."
    ID_TAKEN = "id-taken", "An id is used again only after its job is gone."
    VERSION = "version", "The versions of a job count 1, 2, 3 … without gaps."
    TABLE = "table", "Every event is a row of the table: its move leads from its `from` to its `to`."
    FROM = "from", "A job is in exactly one state: each event starts from where the one before it led."
    AFTER_END = "after-end", "Nothing follows an ending but redrive, delete and prune."
    ENDED_TWICE = "ended-twice", "A drive has one ending."
    DRIVE = "drive", "The drive grows by one with a redrive, and never otherwise."
    EARLY_PROMOTE = "early-promote", "No job becomes claimable before its time."
    UNBLOCKED_TWICE = "unblocked-twice", "What waited for other jobs is let go once in a drive."
    CANCEL_IGNORED = "cancel-ignored", "A job whose cancel was asked for is not run again."

    # Leases and attempts

    OVERLAP = "overlap", "A job has one lease at a time: it is claimed only while none is held."
    DELIVERY = "delivery", "The delivery grows by one with each claim."
    FENCE = "fence", "Fences of a job strictly increase."
    STALE = "stale", "What is done under a lease carries the fence, worker and delivery of the current one."
    EARLY_EXPIRE = (
        "early-expire",
        "No lease is taken away before its deadline, unless that is its duration and 60 s ahead.",
    )
    ATTEMPT = "attempt", "The number of an attempt is the failures of its drive so far, plus one."
    ATTEMPTS = "attempts", "A job runs at most `max_attempts` times per drive to failure."
    EXHAUSTED = "exhausted", "A job whose attempts are used up is dead, and not tried again."
    EARLY_BURY = (
        "early-bury",
        "A job is dead only when its attempts are used up, or no worker knew its task for long.",
    )

    # The queue

    FIFO = "fifo", "Within a tier, what arrived first is claimed first."
    TIER = "tier", "A higher tier is claimed before a lower one."
    KEY_TWICE = "key-twice", "An idempotency key is given to no second job while its first one lives."

    INSTANT = "instant", "A schedule makes one job for each instant."

    # Limits and keys, where the queue's declarations are given

    KEY_LIMIT = "key-limit", "Of a key no more jobs run at once than its limit."
    MAX_ACTIVE = "max-active", "Of a queue no more jobs run at once than its `max_active`."
    RATE = "rate", "In any time w a queue starts at most rate · w + burst jobs."
    KEY_RATE = "key-rate", "In any time w a key starts at most rate · w + burst jobs."
    KEY_FIFO = "key-fifo", "Within a key, what arrived first is claimed first."
    TURN = (
        "turn",
        "While a key could be served, no other has more turns than its weight gives it: usually one.",
    )
    KEYLESS = "keyless", "Every job of a keyed queue has a key."

    # Against other records

    LOST = "lost", "Every job whose enqueue returned is in the log."
    KEY_OTHER = "key-other", "The job that a producer got for its key was enqueued under that key."
    NO_CLAIM = "no-claim", "Every execution has its claim: the same job, delivery and fence."
    NO_EXECUTION = "no-execution", "Every completed job was executed under the lease that completed it."
    EXECUTED_TWICE = "executed-twice", "Under one fence a job is executed at most once."
    NOT_IN_STORE = "not-in-store", "Every job that the log leaves live is in the store."
    NOT_IN_LOG = "not-in-log", "Every job in the store is known from the log."
    STORE_STATE = "store-state", "The store has each job in the state that the log leaves it in."


class Breach(msgspec.Struct, frozen=True):
    """A promise that was broken, where, and how. `seq` is None where no single event shows it."""

    rule: Rule
    queue: QueueRef | None
    job: str | None
    seq: int | None
    says: str

    def __str__(self) -> str:
        where = [] if self.queue is None else [f"queue {self.queue}"]
        where += [] if self.job is None else [f"job {self.job}"]
        where += [] if self.seq is None else [f"event {self.seq}"]
        return f"{self.rule}: {', '.join([*where, self.says])}"


class Produced(msgspec.Struct, frozen=True):
    """A producer's own record: its enqueue returned this job. The key is the one it asked with, if any."""

    queue: QueueRef
    job: str
    idempotency_key: str | None = None


class Executed(msgspec.Struct, frozen=True):
    """A handler's own record of one execution. Times are its own clock's, and not compared with the log's."""

    queue: QueueRef
    job: str
    delivery: int
    fence: int
    started_at: int | None = None
    ended_at: int | None = None
    outcome: str | None = None


class Declared(msgspec.Struct, frozen=True):
    """What was declared of a queue from this time on, and the rules of its keys. Events do not tell it."""

    at: int
    declaration: Declaration
    rules: dict[str, KeyRule] = {}


JobName = tuple[str, str, str]
"""The tenant, the queue and the id of a job."""
LiveStates = Mapping[JobName, State]
"""The states that the store has. Ended jobs may be left out."""
OrderedStates = Iterable[tuple[JobName, State]]
"""The same in the order of names, for whoever does not want to have all of them in memory."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every job, and every breach.

    `completed`, `failed`, `dead` and `cancelled` count jobs by their newest ending, kept or removed since;
    `deleted` those removed before any ending, or in a new drive. With `live` they add up to `jobs`.
    """

    events: int
    unknown: int
    jobs: int
    enqueued: int
    completed: int
    failed: int
    dead: int
    cancelled: int
    deleted: int
    live: dict[State, int]
    removed: int
    """Records taken away after their ending, by delete or prune."""
    claimed: int
    retried: int
    recovered: int
    """Leases that ran out and were taken away."""
    redriven: int
    lost: int
    """Jobs that were produced, or live by the log, and are nowhere to be found."""
    breaches: tuple[Breach, ...]

    @property
    def is_clean(self) -> bool:
        """True when every promise was kept."""
        return not self.breaches

    @property
    def by_rule(self) -> dict[Rule, int]:
        """How many breaches of each rule that was broken."""
        counts: dict[Rule, int] = {}
        for breach in self.breaches:
            counts[breach.rule] = counts.get(breach.rule, 0) + 1
        return counts
