"""Accepts connections, also when the process has no file descriptors left.

The accept loop of asyncio pauses for a second then, logs a traceback for each connection that waits, and new
clients are shut out until somebody else leaves.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

_LOGGER: Final = logging.getLogger("penstock.service")
AT_ONCE: Final = 16
"""Connections that are accepted before others are served again."""
AGAIN: Final = 0.05
"""Seconds until the next try after a failure."""
LOG_EVERY: Final = 60.0
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Hands connections of a listening socket to new protocols. `relieve` closes some, and says how many."""

    def __init__(
        self, bound: socket.socket, protocol: Callable[[], asyncio.Protocol], relieve: Callable[[], int]
    ) -> None:
        self._socket = bound
        self._protocol = protocol
        self._relieve = relieve
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._making: set[asyncio.Task[None]] = set()
        self._logged_at = float("-inf")
        bound.setblocking(False)
        self._loop.add_reader(bound.fileno(), self._accept)

    def stop(self) -> None:
        """Accept no more connections."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                made, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            made.setblocking(False)
            task = self._loop.create_task(self._connect(made))
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    async def _connect(self, made: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, made)
        except OSError:
            # The client went away already.
            made.close()

    def _pause(self, error: OSError) -> None:
        # The listening socket stays readable: without a pause the loop would do nothing else.
        self._loop.remove_reader(self._socket.fileno())
        self._again = self._loop.call_later(AGAIN, self._resume)
        closed = self._relieve() if error.errno in _EXHAUSTED else 0
        if self._loop.time() - self._logged_at < LOG_EVERY:
            return
        self._logged_at = self._loop.time()
        _LOGGER.warning(
            "cannot accept connections (%s); closed %d that waited for their clients. "
            "Allow more file descriptors (ulimit -n), or fewer connections (serve.connections)",
            error.strerror or error,
            closed,
        )

    def _resume(self) -> None:
        self._again = None
        self._loop.add_reader(self._socket.fileno(), self._accept)
