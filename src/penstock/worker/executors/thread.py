"""Sync handlers: in daemon threads, so that one that will not end does not hold the process."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What a call in a thread came to."""

    value: Any
    error: BaseException | None


class _Work(NamedTuple):
    future: asyncio.Future[Outcome]
    context: contextvars.Context
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class Threads:
    """As many threads as calls run at once; idle ones are used again. For one event loop.

    Not concurrent.futures: its threads are joined when the interpreter exits.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._outcomes: deque[tuple[asyncio.Future[Outcome], Outcome]] = deque()
        self._lock = threading.Lock()
        self._idle = 0
        self._started = 0
        self._is_woken = False
        self._is_closed = False

    async def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the function returns or raises. Cancelling the call leaves the thread to itself."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._submit(_Work(future, contextvars.copy_context(), function, args, kwargs))
        outcome = await future
        if outcome.error is None:
            return outcome.value
        try:
            raise outcome.error
        finally:
            # Its traceback leads to this frame, which must not lead back to it.
            del future, outcome

    def close(self) -> None:
        """Let idle threads end now, and busy ones after their call."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._work.put(None)

    def _submit(self, work: _Work) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._work.put(work)
                return
            self._started += 1
            number = self._started
        threading.Thread(target=self._run, args=(work,), name=f"{self._name}-{number}", daemon=True).start()

    def _run(self, work: _Work | None) -> None:
        while work is not None:
            try:
                value = work.context.run(work.function, *work.args, **work.kwargs)
                outcome = Outcome(value, None)
            except BaseException as error:  # noqa: BLE001 (a handler's exit or interrupt is its own error)
                outcome = Outcome(None, error)
            future = work.future
            with self._lock:
                if not self._is_closed:
                    self._idle += 1
                is_last = self._is_closed
            self._deliver(future, outcome)
            del future, outcome, work
            if is_last:
                return
            work = self._work.get()

    def _deliver(self, future: asyncio.Future[Outcome], outcome: Outcome) -> None:
        self._outcomes.append((future, outcome))
        if not self._is_woken:
            self._is_woken = True
            # A closed loop has nobody left who waits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        # Cleared first: what is appended after the last look schedules another hand-over.
        self._is_woken = False
        while self._outcomes:
            future, outcome = self._outcomes.popleft()
            if not future.done():
                future.set_result(outcome)
