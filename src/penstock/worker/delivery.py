"""One claimed job in this worker, from the claim to the answer to its settlement."""

import asyncio
from enum import Enum

from penstock.core.job import Claimed


class Stop(Enum):
    """Why the worker stops a handler that would go on."""

    CANCEL = "its cancel was asked for"
    TIMEOUT = "its time is over"
    SHUTDOWN = "the worker shuts down"


class Delivery:
    """A lease that this worker holds, and the execution under it.

    The event loop writes every field but `asked`, `lost` and `until`, which belong to the lease keeper's
    thread, and `progress`, which belongs to the handler. `until` is when the lease surely still holds, on the
    worker's own clock.
    """

    __slots__ = (
        "asked",
        "bucket",
        "closed",
        "in_thread",
        "job",
        "lost",
        "progress",
        "reports",
        "running",
        "saw_stop",
        "sent",
        "soft",
        "started",
        "stop",
        "stuck",
        "task",
        "token",
        "until",
    )

    def __init__(self, job: Claimed, until: float) -> None:
        self.job = job
        self.token = job.token
        self.until = until
        self.asked = False
        """Someone asked for the job to be cancelled."""
        self.lost = False
        """The lease is gone, or may be: nothing may be settled."""
        self.stop: Stop | None = None
        self.stuck = False
        """Its thread ran on long after the timeout: the worker ends, and the lease runs out."""
        self.soft = False
        """Its soft limit is over: what it returns still counts."""
        self.saw_stop = False
        """The handler looked, and was told to stop."""
        self.task: asyncio.Task[None] | None = None
        self.in_thread = False
        self.started = False
        self.running = False
        """The handler has not ended: its slot is taken, whatever became of the lease."""
        self.closed = False
        """The settlement is decided, or there will be none."""
        self.sent = False
        """The settlement was handed to the store."""
        self.progress: bytes | None = None
        self.reports = False
        self.bucket: set[Delivery] | None = None

    def is_stopped(self) -> bool:
        """What the handler's context says when asked; from any thread."""
        if self.asked or self.lost or self.stop is not None:
            self.saw_stop = True
            return True
        return self.soft

    def soften(self) -> None:
        """From now on the context says that it is time to end."""
        self.soft = True
