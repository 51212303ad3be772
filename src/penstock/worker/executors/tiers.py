"""Which executor runs which task of a worker."""

import shutil
from collections.abc import Collection
from typing import Any, Final

from penstock.core.errors import ConfigError
from penstock.core.job import QueueRef
from penstock.tasks.execution import Tier
from penstock.tasks.registry import Registry
from penstock.tasks.task import Task
from penstock.worker.executors.inline import Inline
from penstock.worker.executors.process.executor import Processes
from penstock.worker.executors.process.host import Host
from penstock.worker.executors.protocol import Executor
from penstock.worker.executors.stopping import StopDelays
from penstock.worker.executors.subprocess.executor import Programs

_DELAYS: Final = StopDelays()


class Tiers:
    """The executors of one worker; ConfigError for a task that names one which the worker does not have."""

    def __init__(
        self,
        queue: QueueRef,
        registry: Registry,
        *,
        default: Tier | None,
        host: Host | None,
        concurrency: int,
        delays: StopDelays = _DELAYS,
    ) -> None:
        check_programs(registry, [queue.name])
        elsewhere = registry.derived(_elsewhere)[default]
        self._inline: Executor = Inline(f"penstock-{queue.name}")
        self._executors: dict[Tier, Executor] = {}
        if elsewhere:
            if host is None:
                raise ConfigError("handlers in processes need the worker of an app: app.worker()")
            self._executors = {
                Tier.PROCESS: Processes(host, concurrency, delays),
                Tier.SUBPROCESS: Programs(host, delays),
            }
        # By name: it is looked up for each job.
        self._elsewhere = {name: self._executors[tier] for name, tier in elsewhere.items()}

    async def open(self) -> None:
        """Open those that are there."""
        for executor in (self._inline, *self._executors.values()):
            await executor.open()

    async def close(self) -> None:
        """Close those that are there."""
        for executor in (self._inline, *self._executors.values()):
            await executor.close()

    def of(self, task: Task[..., ..., Any]) -> Executor:
        """The executor of the task."""
        return self._elsewhere.get(task.name, self._inline)

    def uses_thread(self, task: Task[..., ..., Any]) -> bool:
        """True when the handler runs where it cannot be interrupted."""
        return not task.is_async and task.name not in self._elsewhere


def _elsewhere(registry: Registry) -> dict[Tier | None, dict[str, Tier]]:
    """The tasks that do not run in the worker, for each default."""
    tasks = [registry.require(name) for name in registry.names()]
    return {
        default: {
            task.name: tier for task in tasks if (tier := task.execution.tier(default)) is not Tier.INLINE
        }
        for default in (None, *Tier)
    }


def _programs(registry: Registry) -> dict[str, list[tuple[str, str]]]:
    """The tasks that are programs, with the names of these, by queue."""
    found: dict[str, list[tuple[str, str]]] = {}
    for task in map(registry.require, registry.names()):
        if task.execution.program is not None:
            found.setdefault(task.queue, []).append((task.name, task.execution.program[0]))
    return found


def check_programs(registry: Registry, queues: Collection[str]) -> None:
    """ConfigError where a program of these queues is not there: every job would fail.

    What belongs to other queues may have its programs on other machines.
    """
    known = registry.derived(_programs)
    for queue in known.keys() & set(queues):
        for name, program in known[queue]:
            _check_program(name, program)


def _check_program(task: str, program: str) -> None:
    """ConfigError when the program is not there: every job would fail."""
    if shutil.which(program) is None:
        raise ConfigError(f"task {task!r}: there is no program {program!r} that can be started")
