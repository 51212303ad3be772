"""What all parts of the memory store share: the lock, the clock, the queues and who is woken."""

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
from penstock.stores.bells import Belfry
from penstock.stores.memory.ledger import Ledger
from penstock.stores.projection import ProjectedTime
from penstock.stores.values import Kept, QueueInfo, Topic


class Room:
    """The queues of one store, under one lock."""

    def __init__(self, *, table: Table = TABLE, clock_us: Callable[[], int] | None = None) -> None:
        self._table = table
        self._clock_us = clock_us or (lambda: time.time_ns() // 1000)
        self._offset_ms = 0
        self._last_us = 0
        self._step: ClockStep | None = None
        self._projected = ProjectedTime()
        self._ledgers: dict[QueueRef, Ledger] = {}
        self._numbered: dict[str, int] = {}
        """The highest number that a queue of each tenant ever had."""
        self._kept: dict[tuple[str, str], dict[str, Kept]] = {}
        self._kept_version = 0
        self._lock = threading.RLock()
        self._belfry = Belfry()

    def _ledger(self, queue: QueueRef) -> Ledger:
        ledger = self._ledgers.get(queue)
        if ledger is None:
            number = self._numbered[queue.tenant] = self._numbered.get(queue.tenant, 0) + 1
            ledger = self._ledgers[queue] = Ledger(QueueInfo(queue, number, made=str(number)))
        return ledger

    def _existing(self, queue: QueueRef) -> Ledger:
        """The queue; QueueAbsentError when there is none."""
        ledger = self._ledgers.get(queue)
        if ledger is None:
            raise QueueAbsentError
        return ledger

    def _told(self, ledger: Ledger) -> QueueInfo:
        """What is told of a queue."""
        return replace(ledger.told, clock_step=self._step)

    def _now_us(self) -> int:
        last_us, clock_us = self._last_us, self._clock_us() + self._offset_ms * 1000
        self._last_us = time_after(last_us, clock_us)
        self._step = stepped(last_us, self._last_us, self._step)
        return self._last_us

    def _now(self) -> int:
        return self._now_us() // 1000

    def _allowed(
        self, ledger: Ledger, move: Move, job_id: str, now: int, token: str | None = None
    ) -> Job | Refused:
        job = ledger.jobs.get(job_id)
        if job is None:
            return Refused(Refusal.MISSING if token is None else Refusal.LOST)
        row = self._table[move]
        why = refusal(row, job, now=now, token=token)
        return job if why is None else Refused(why, job.state)

    def _put(
        self, ledger: Ledger, job: Job, move: Move, source: State | None, at: int, *, front: bool = False
    ) -> None:
        ledger.put(job, move, source, at, front=front)
        self._touch(ledger, job, move)

    def _touch(self, ledger: Ledger, job: Job, move: Move) -> None:
        if job.key is not None and self._table[move].readies:
            ledger.touched.append(job.key)

    def _refresh(self, ledger: Ledger) -> None:
        """Look again at the keys that this call touched: at its end, in the order it touched them."""
        if ledger.declared.mode.has_keys:
            ledger.lanes.refresh(ledger.touched, ledger.declared, self._now_us(), ledger.is_current)
        ledger.touched.clear()

    def _ring_after(self, ledger: Ledger, out: Sequence[Applied | Refused]) -> None:
        states = {outcome.state for outcome in out if isinstance(outcome, Applied)}
        queue = ledger.info.queue
        # Where claims are limited, an ending lets the next job go.
        limited = ledger.info.declaration is not None and any(state.is_ended for state in states)
        if limited or states & {State.PENDING, State.DELAYED}:
            self._belfry.ring(queue, Topic.READY)
        if any(state.is_ended for state in states):
            self._belfry.ring(queue, Topic.ENDED)
