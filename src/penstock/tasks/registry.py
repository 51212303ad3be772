"""The tasks an app knows, by name."""

import threading
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from penstock.core.errors import ConfigError, OptionError, UnknownTaskError
from penstock.tasks.batch import BATCH_TASK, batch_task
from penstock.tasks.task import Task

T = TypeVar("T")


class Registry:
    """Filled while modules are imported, fixed when a worker starts."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., ..., Any]] = {}
        self._batch = batch_task()
        self._is_frozen = False
        self._derived: dict[Callable[[Registry], Any], Any] = {}
        # Modules may be imported, and tasks registered, in several threads.
        self._lock = threading.Lock()

    def add(self, task: Task[..., ..., Any]) -> None:
        """Register a task; ConfigError when its name is taken or a worker has started."""
        with self._lock:
            if self._is_frozen:
                raise ConfigError(
                    f"task {task.name!r} comes too late: a worker has started, and tasks are registered at "
                    "import"
                )
            if task.name == BATCH_TASK:
                raise ConfigError(f"the name {BATCH_TASK!r} is taken: choose another one")
            known = self._tasks.get(task.name)
            if known is not None:
                raise ConfigError(
                    f"two tasks are named {task.name!r}: {_place(known)} and {_place(task)}; give one a name="
                )
            self._tasks[task.name] = task

    def get(self, name: str) -> Task[..., ..., Any] | None:
        """The task, if there is one; the end of a batch is known to every app."""
        if name == BATCH_TASK:
            return self._batch
        return self._tasks.get(name)

    def require(self, name: str) -> Task[..., ..., Any]:
        """The task, or UnknownTaskError with the names that come near."""
        if not isinstance(name, str):
            raise OptionError("task", name, "its name; a task itself is enqueued by `await task.enqueue(…)`")
        task = self._tasks.get(name)
        if task is None:
            near = get_close_matches(name, self._tasks, n=3)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "is its module imported?"
            raise UnknownTaskError(f"no task is named {name!r}: {hint}")
        return task

    def names(self) -> list[str]:
        """All names, in order."""
        with self._lock:
            return sorted(self._tasks)

    def derived(self, make: "Callable[[Registry], T]") -> T:
        """What `make` makes of the tasks; made once when no more tasks are taken."""
        if not self._is_frozen:
            return make(self)
        if make not in self._derived:
            self._derived[make] = make(self)
        found: T = self._derived[make]
        return found

    @property
    def is_frozen(self) -> bool:
        """True once no more tasks are taken."""
        return self._is_frozen

    def freeze(self) -> None:
        """Take no more tasks; ConfigError when a task's types cannot be resolved."""
        with self._lock:
            if self._is_frozen:
                return
            for task in self._tasks.values():
                task.check()
            self._is_frozen = True


def _place(task: Task[..., ..., Any]) -> str:
    function = task.function
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
