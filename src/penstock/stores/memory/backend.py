"""What all parts of the memory store hold: the lock, the clock, the queues and the notifier."""

import threading
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from penstock.core.clocks import ClockStep, stepped, time_after
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.core.transitions import TABLE, Table, refusal
from penstock.stores.absent import QueueAbsentError
from penstock.stores.memory.ledger import Ledger
from penstock.stores.notifier import LocalNotifier
from penstock.stores.projection import ProjectedTime
from penstock.stores.values import QueueInfo, Topic


class Backend:
    """The queues of one store, under one lock."""

    def __init__(self, *, table: Table = TABLE, clock_us: Callable[[], int] | None = None) -> None:
        self.table = table
        self._clock_us = clock_us or (lambda: time.time_ns() // 1000)
        self.offset_ms = 0
        self._last_us = 0
        self._step: ClockStep | None = None
        self.projected = ProjectedTime()
        self.ledgers: dict[QueueRef, Ledger] = {}
        self._numbers: dict[str, int] = {}
        """The highest number that a queue of each tenant ever had."""
        self.lock = threading.RLock()
        self.notifier = LocalNotifier()

    def ledger(self, queue: QueueRef) -> Ledger:
        """The queue, made if it is new."""
        ledger = self.ledgers.get(queue)
        if ledger is None:
            number = self._numbers[queue.tenant] = self._numbers.get(queue.tenant, 0) + 1
            ledger = self.ledgers[queue] = Ledger(QueueInfo(queue, number, made=str(number)))
        return ledger

    def existing(self, queue: QueueRef) -> Ledger:
        """The queue; QueueAbsentError when there is none."""
        ledger = self.ledgers.get(queue)
        if ledger is None:
            raise QueueAbsentError
        return ledger

    def info_of(self, ledger: Ledger) -> QueueInfo:
        """The queue as callers see it."""
        return replace(ledger.queue_info(), clock_step=self._step)

    def now_us(self) -> int:
        """Microseconds by the store's clock; never going back."""
        last_us, clock_us = self._last_us, self._clock_us() + self.offset_ms * 1000
        self._last_us = time_after(last_us, clock_us)
        self._step = stepped(last_us, self._last_us, self._step)
        return self._last_us

    def now(self) -> int:
        """The same in milliseconds."""
        return self.now_us() // 1000

    def allowed(
        self, ledger: Ledger, move: Move, job_id: str, now: int, token: str | None = None
    ) -> Job | Refused:
        """The job, where the table of moves lets it make this move now."""
        job = ledger.jobs.get(job_id)
        if job is None:
            return Refused(Refusal.MISSING if token is None else Refusal.LOST)
        row = self.table[move]
        why = refusal(row, job, now=now, token=token)
        return job if why is None else Refused(why, job.state)

    def put(
        self, ledger: Ledger, job: Job, move: Move, source: State | None, at: int, *, front: bool = False
    ) -> None:
        """Keep a record after a move, write its event, and remember its key."""
        ledger.put(job, move, source, at, front=front)
        self.touch(ledger, job, move)

    def touch(self, ledger: Ledger, job: Job, move: Move) -> None:
        """Remember the job's key, if the move can change whether it could be served."""
        if job.key is not None and self.table[move].readies:
            ledger.touched.append(job.key)

    def refresh(self, ledger: Ledger) -> None:
        """Look again at the keys that this call touched: at its end, in the order it touched them."""
        if ledger.declared.mode.has_keys:
            ledger.lanes.refresh(ledger.touched, ledger.declared, self.now_us(), ledger.is_current)
        ledger.touched.clear()

    async def notify_soon(self, queue: QueueRef, topic: Topic) -> None:
        """Notify the subscribers of a queue."""
        self.notifier.notify(queue, topic)

    def notify_after(self, ledger: Ledger, out: Sequence[Applied | Refused]) -> None:
        """Notify of what these outcomes change for workers and for waiting callers."""
        states = {outcome.state for outcome in out if isinstance(outcome, Applied)}
        queue = ledger.info.queue
        # Where claims are limited, an ending lets the next job go.
        limited = ledger.info.declaration is not None and any(state.is_ended for state in states)
        if limited or states & {State.PENDING, State.DELAYED}:
            self.notifier.notify(queue, Topic.READY)
        if any(state.is_ended for state in states):
            self.notifier.notify(queue, Topic.ENDED)
