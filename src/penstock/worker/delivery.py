"""One claimed job in this worker: its phases, from the claim until its slot is free again.

Only the worker's event loop writes a `Delivery`, and only `advance` changes its phase, by `TABLE`. What the
thread that renews leases finds out stands in the delivery's `Lease`, which only that thread writes; it posts
the rest to the event loop. The handler writes `progress` and `saw_stop`.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Final

from penstock.core.job import Claimed


class Stop(Enum):
    """Why the worker stops a handler that would go on."""

    CANCEL = "its cancel was requested"
    TIMEOUT = "its time is over"
    SHUTDOWN = "the worker shuts down"


class Phase(IntEnum):
    """How far a delivery is. A handler that runs holds its slot, whatever became of the lease."""

    CLAIMED = auto()
    """The lease is held, and no handler was started."""
    STARTING = auto()
    """The handler's task exists and had no turn yet."""
    RUNNING = auto()
    """The handler runs under its lease."""
    OVERDUE = auto()
    """The handler's thread runs past its timeout. Its lease is renewed, so that no retry runs beside it."""
    STUCK = auto()
    """The thread ran on long after its timeout: the worker ends without it, and the lease runs out."""
    ENDED = auto()
    """The handler has ended, and the settlement is not decided."""
    DECIDED = auto()
    """The settlement is decided, and no handler runs."""
    OUTLIVED = auto()
    """The settlement is decided, and the handler runs on."""
    DETACHED = auto()
    """Nothing is left to settle, and the handler runs on."""
    FORSAKEN = auto()
    """The lease of a stuck thread is gone."""
    OVER = auto()
    """The slot is free again."""


class Step(IntEnum):
    """What happens to a delivery."""

    START = auto()
    """The handler's task is made."""
    BEGIN = auto()
    """The handler's task has its first turn."""
    OVERRUN = auto()
    """The timeout is over for a handler that cannot be stopped."""
    STICK = auto()
    """The handler ran on for `stuck_after` seconds more."""
    END = auto()
    """The handler has ended."""
    DECIDE = auto()
    """Its settlement is decided."""
    SEND = auto()
    """Its settlement is handed to the store."""
    LOSE = auto()
    """Its lease is gone: nothing may be settled."""


TABLE: Final[Mapping[Phase, Mapping[Step, Phase]]] = {
    Phase.CLAIMED: {Step.START: Phase.STARTING, Step.DECIDE: Phase.DECIDED},
    Phase.STARTING: {
        Step.BEGIN: Phase.RUNNING,
        Step.OVERRUN: Phase.OVERDUE,
        Step.DECIDE: Phase.OUTLIVED,
    },
    Phase.RUNNING: {
        Step.OVERRUN: Phase.OVERDUE,
        Step.END: Phase.ENDED,
        Step.DECIDE: Phase.OUTLIVED,
        Step.LOSE: Phase.DETACHED,
    },
    Phase.OVERDUE: {
        Step.STICK: Phase.STUCK,
        Step.END: Phase.ENDED,
        Step.DECIDE: Phase.OUTLIVED,
        Step.LOSE: Phase.DETACHED,
    },
    Phase.STUCK: {Step.END: Phase.ENDED, Step.LOSE: Phase.FORSAKEN},
    Phase.ENDED: {Step.DECIDE: Phase.DECIDED, Step.LOSE: Phase.OVER},
    Phase.DECIDED: {Step.SEND: Phase.OVER},
    Phase.OUTLIVED: {Step.SEND: Phase.DETACHED, Step.END: Phase.DECIDED},
    Phase.DETACHED: {Step.END: Phase.OVER},
    Phase.FORSAKEN: {Step.END: Phase.OVER},
    Phase.OVER: {},
}
"""The phase that a step leads to. A step that a phase does not have comes too late, and changes nothing."""

OPEN: Final = frozenset(
    {Phase.CLAIMED, Phase.STARTING, Phase.RUNNING, Phase.OVERDUE, Phase.STUCK, Phase.ENDED}
)
"""The phases in which nothing is decided yet."""
EXECUTING: Final = frozenset(
    {
        Phase.STARTING,
        Phase.RUNNING,
        Phase.OVERDUE,
        Phase.STUCK,
        Phase.OUTLIVED,
        Phase.DETACHED,
        Phase.FORSAKEN,
    }
)
"""The phases in which a handler runs, or is about to."""


class Lease:
    """What the thread that renews leases knows of one of them."""

    __slots__ = ("is_cancel_reported", "is_lost", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        """When the lease surely still holds, on the worker's own clock."""
        self.is_lost = False
        """The lease is gone, or may be."""
        self.is_cancel_reported = False
        """The event loop was told that a cancel was requested."""


class Delivery:
    """A job that this worker claimed, and the execution under its lease."""

    __slots__ = (
        "bucket",
        "cancel_requested",
        "has_progress",
        "is_soft_over",
        "job",
        "lease",
        "phase",
        "progress",
        "runs_in_thread",
        "saw_stop",
        "stop",
        "task",
        "token",
    )

    def __init__(self, job: Claimed, until: float) -> None:
        self.job = job
        self.token = job.token
        self.lease = Lease(until)
        self.phase = Phase.CLAIMED
        self.runs_in_thread = False
        """The handler can be told to stop, and not be stopped."""
        self.task: asyncio.Task[None] | None = None
        self.cancel_requested = False
        self.stop: Stop | None = None
        self.is_soft_over = False
        """The soft limit is over: what the handler returns still counts."""
        self.saw_stop = False
        """The handler asked whether it should stop, and was told to."""
        self.progress: bytes | None = None
        self.has_progress = False
        """The handler reported progress that may not be sent yet."""
        self.bucket: set[Delivery] | None = None

    def advance(self, step: Step) -> bool:
        """Take a step. False, and nothing changed, where it comes too late."""
        after = TABLE[self.phase].get(step)
        if after is None:
            return False
        self.phase = after
        return True

    @property
    def is_open(self) -> bool:
        """True while nothing is decided yet."""
        return self.phase in OPEN

    @property
    def is_executing(self) -> bool:
        """True while a handler runs, or is about to."""
        return self.phase in EXECUTING

    def is_stopped(self) -> bool:
        """What the handler's context answers; from any thread."""
        if self.cancel_requested or self.lease.is_lost or self.stop is not None:
            self.saw_stop = True
            return True
        return self.is_soft_over

    def end_soft_limit(self) -> None:
        """From now on the handler's context says that it is time to end."""
        self.is_soft_over = True
