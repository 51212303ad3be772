"""The thread that renews leases: one for all queues of a process, with one store of its own."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol

from penstock.core.errors import StoreError, StoreUnavailableError
from penstock.stores.protocol import Store
from penstock.worker.backoff import StoreBackoff

_LOGGER: Final = logging.getLogger("penstock.worker")
JOIN_TIMEOUT: Final = 2.0
"""Seconds that the thread has to end; it is a daemon, so that the process can exit without it."""
OPEN_CAP: Final = 1.0
"""Seconds between two attempts to open the store, at most."""


class Keeper(Protocol):
    """What renews the leases of one queue, in the renewer's thread."""

    async def keep(self, renewer: "LeaseRenewer") -> None:
        """Renew leases until stopped."""
        ...

    def fail(self, error: BaseException) -> None:
        """Leases can no longer be renewed. From the renewer's thread."""
        ...

    def holds(self, token: str) -> bool:
        """True for a lease that it renewed in time. From any thread."""
        ...


class LeaseRenewer:
    """Runs the keepers of all queues of a process in one thread, so that no handler can hold them up.

    The thread is there while anyone uses it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._users = 0
        self._thread: _RenewerThread | None = None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the thread for the time of the block, whatever keepers come and go."""
        self.enter()
        try:
            yield
        finally:
            await self.leave()

    def enter(self) -> None:
        """One more uses the thread."""
        self._users += 1
        if self._thread is None:
            self._thread = _RenewerThread(self, self._store.clone())
            self._thread.start()

    async def leave(self) -> None:
        """One uses it no more; the last one ends it. Bounded: a thread that does not end is left behind."""
        self._users -= 1
        if not self._users and self._thread is not None:
            thread, self._thread = self._thread, None
            await thread.stop()

    def start(self, keeper: Keeper) -> None:
        """Let a keeper work; for those who entered."""
        self._running().take(keeper)

    def holds(self, token: str) -> bool:
        """True for a lease that one of its keepers holds, and renewed in time by the worker's own clock."""
        return self._thread is not None and self._thread.holds(token)

    def call(self, what: Callable[[], object]) -> None:
        """Call something in the thread, soon."""
        if self._thread is not None:
            self._thread.call(what)

    async def opened(self) -> Store:
        """The thread's own store, once it is open. In the thread."""
        thread = self._running()
        await thread.opened.wait()
        return thread.store

    async def check_store(self) -> None:
        """Ask the store for the time, from the thread; StoreError where it does not answer. For any loop."""
        thread = self._thread
        if thread is None:
            raise StoreUnavailableError("the store is not open")
        await thread.check_store()

    def _running(self) -> "_RenewerThread":
        if self._thread is None:
            raise RuntimeError("the lease renewer is not running")
        return self._thread


class _RenewerThread:
    """One life of the thread."""

    def __init__(self, renewer: LeaseRenewer, store: Store) -> None:
        self.store = store
        self._renewer = renewer
        self._owner = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._keepers: dict[Keeper, asyncio.Task[None]] = {}
        self._known: set[Keeper] = set()
        """All keepers that were handed over, also those that the thread has not begun yet."""
        self._failure: BaseException | None = None
        self.opened = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-leases", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def call(self, what: Callable[..., object], *args: object) -> None:
        """Call something in the thread, soon."""
        # A closed loop has nothing left to do.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *args)

    def take(self, keeper: Keeper) -> None:
        """Let a keeper work, soon; its leases count as held from now on."""
        self._known.add(keeper)
        self.call(self._begin, keeper)

    async def check_store(self) -> None:
        """Ask the store for the time, in the thread; awaited on any loop."""
        try:
            answer = asyncio.run_coroutine_threadsafe(self._ask_for_time(), self._loop)
        except RuntimeError:
            raise StoreUnavailableError("the store is closed") from None
        await asyncio.wrap_future(answer)

    async def _ask_for_time(self) -> None:
        await self.opened.wait()
        await self.store.clock.now()

    def holds(self, token: str) -> bool:
        """True for a lease that one of its keepers holds. From any thread."""
        return any(keeper.holds(token) for keeper in self._known.copy())

    async def stop(self) -> None:
        """End the thread, for so long as it may take."""
        self.call(self._stopping.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(JOIN_TIMEOUT):
                await self._ended.wait()

    # In the thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        finally:
            # A closed loop has nobody left to tell.
            with suppress(RuntimeError):
                self._owner.call_soon_threadsafe(self._ended.set)

    async def _main(self) -> None:
        opening = asyncio.create_task(self._open())
        await self._stopping.wait()
        tasks = [opening, *self._keepers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=JOIN_TIMEOUT)
        with suppress(StoreError):
            await self.store.close()

    async def _open(self) -> None:
        outage = StoreBackoff(_LOGGER, "renewing leases", {})
        # A client may lose a cancel that comes together with an answer.
        while not self._stopping.is_set():
            try:
                await self.store.open()
                break
            except StoreError as error:
                try:
                    pause = outage.failed(error, OPEN_CAP)
                except StoreError as hard:
                    self._fail(hard)
                    return
                await asyncio.sleep(pause)
        outage.over()
        self.opened.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        for keeper in self._keepers:
            keeper.fail(error)

    def _begin(self, keeper: Keeper) -> None:
        if self._failure is not None:
            keeper.fail(self._failure)
        self._keepers[keeper] = asyncio.create_task(self._keep(keeper, keeper.keep(self._renewer)))

    async def _keep(self, keeper: Keeper, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseExceptionGroup as errors:
            keeper.fail(errors.exceptions[0])
        except BaseException as error:  # noqa: BLE001 (without a keeper the worker must not go on)
            keeper.fail(error)
        finally:
            self._keepers.pop(keeper, None)
            self._known.discard(keeper)
