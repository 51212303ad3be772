"""The children of one worker, and with that of one tenant: kept warm per task, and so per permission set."""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Any, Final

from penstock.tasks.execution import RECYCLE_BYTES, RECYCLE_JOBS
from penstock.tasks.task import Task
from penstock.worker.executors.process.host import Host
from penstock.worker.executors.process.kept import Kept
from penstock.worker.executors.process.wire import OVERHEAD, Done

_BASE64: Final = 4 / 3
CLOSE_WAIT: Final = 1.5


class Pool:
    """Up to twice as many children as slots, so that tasks that take turns keep theirs.

    Beyond that, the one that was idle longest makes room for another task's.
    """

    def __init__(self, host: Host, slots: int) -> None:
        self._host = host
        self._capacity = 2 * slots
        self._idle: deque[Kept] = deque()
        self._all: set[Kept] = set()

    def take(self, task: Task[..., ..., Any], seen: Hashable = None) -> Kept:
        """A child for the task: the one that was used last, or a new one.

        `seen` is what its permissions grant, as it is now: a child that holds something else is ended.
        """
        for child in reversed([each for each in self._idle if each.task == task.name and each.is_usable]):
            self._idle.remove(child)
            if child.seen == seen:
                return child
            self._drop(child)
        if len(self._all) >= self._capacity and self._idle:
            self._drop(self._idle.popleft())
        limit = round(2 * task.payload_limit * _BASE64) + OVERHEAD
        child = Kept(self._host, task.name, limit, seen)
        self._all.add(child)
        child.process.exited.add_done_callback(lambda _: self._forget(child))
        return child

    def give_back(self, child: Kept, task: Task[..., ..., Any], outcome: Done | None) -> None:
        """Keep the child for the next job, or end it: it is old, large, spoiled or not alone."""
        if outcome is None or outcome.has_left or not child.is_usable:
            child.kill()
            self._drop(child)
        elif (
            child.jobs >= (task.execution.recycle_jobs or RECYCLE_JOBS)
            or outcome.grown >= (task.execution.recycle_bytes or RECYCLE_BYTES)
            or not self._host.keeps(task.name)
        ):
            self._drop(child)
        else:
            self._idle.append(child)

    async def close(self) -> None:
        """End all children; who does not end in time is left to the fork server."""
        children, self._all = self._all, set()
        self._idle.clear()
        for child in children:
            child.end()
        exits = [child.process.exited for child in children if not child.process.exited.done()]
        if exits:
            await asyncio.wait(exits, timeout=CLOSE_WAIT)

    def _drop(self, child: Kept) -> None:
        self._all.discard(child)
        child.end()

    def _forget(self, child: Kept) -> None:
        self._all.discard(child)
        if child in self._idle:
            self._idle.remove(child)
