"""Serves the service on a socket: uvicorn, and what is slow or too large is kept out at its door."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.core.errors import ConfigError
from penstock.service.app import Service
from penstock.service.limits import Limits
from penstock.service.problems import MEDIA_TYPE, Problem

KEEP_ALIVE: Final = 30
"""Seconds that a connection without a request is kept."""
BACKLOG: Final = 1_024
_TITLES: Final = {
    400: ("malformed", "The request cannot be read"),
    408: ("slow", "The request took too long to arrive"),
    431: ("head-too-large", "The headers are too large or too many"),
    503: ("busy", "Too many connections"),
}


class GuardedProtocol(HttpToolsProtocol):
    """HTTP/1.1 within `Limits`: a head that comes slowly, or is too large, ends the connection."""

    limits = Limits()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._is_between = False
        self._is_busy = False
        self._left: int | None = None
        self._head_bytes = 0
        self._weight = 0
        self._why = 400

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503)
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; between two requests the time for the next head begins with its first byte."""
        if self.transport.is_closing():
            return
        if self._is_between:
            self._is_between = False
            self._expect_head()
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                self.transport.close()
                return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > self.limits.head_bytes and not self.transport.is_closing():
            self._refuse(431)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, while there is room. The parser also calls this for trailers, which are dropped."""
        self._weigh(len(name) + len(value))
        if not self._in_head:
            # The request was routed and authenticated by its head; a proxy in front saw no trailers either.
            return
        super().on_header(name, value)
        if len(self.headers) > self.limits.headers:
            self._weigh(self.limits.head_bytes + 1)

    def on_url(self, url: bytes) -> None:
        """The same for the path and the query."""
        self._weigh(len(url))
        super().on_url(url)

    def on_message_begin(self) -> None:
        """Another head begins, maybe before the last request was answered."""
        self._weight = 0
        if not self._in_head:
            self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        self._is_busy = True
        self._stop_waiting()
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # The parser reads no further request on this connection: a client must not wait for its answer.
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """What is left of a request that is answered already is passed over, within bounds."""
        was_last = not self.pipeline
        self._is_busy = not was_last
        super().on_response_complete()
        if was_last and self.cycle.more_body:
            # Who is still sending would not see the answer if this were the end of the connection.
            self._left = self.limits.body_bytes
            self._unset_keepalive_if_required()
            self._wait(self.transport.close)
        elif was_last:
            self._is_between = True

    def on_message_complete(self) -> None:
        """The rest of a request that was answered before is there: the connection may be used again."""
        super().on_message_complete()
        if self._left is not None:
            self._left = None
            self._is_between = True
            self._stop_waiting()
            self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE, self.timeout_keep_alive_handler)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read."""
        self._refuse(self._why)

    def _weigh(self, size: int) -> None:
        self._weight += size
        if self._weight > self.limits.head_bytes:
            self._why = 431
            # The parser stops at this, and asks for the answer to a request that it cannot read.
            raise ValueError("the head is too large")

    def _expect_head(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._wait(self._is_late)

    def _wait(self, then: Callable[[], None]) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(self.limits.head_timeout, then)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        self._stop_waiting()
        if self._is_busy and (self._in_head or self.cycle.response_started):
            # It would pass for the answer to a request before this one, or for a part of it.
            self.transport.close()
            return
        slug, title = _TITLES[status]
        problem = Problem(type=f"urn:penstock:{slug}", title=title, status=status, detail=title)
        body = msgspec.json.encode(problem)
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class Server(uvicorn.Server):
    """Ends gracefully on SIGTERM and Ctrl-C: what waits is told at once, and what runs is answered."""

    def __init__(self, service: Service, *, grace: float) -> None:
        guarded = type("GuardedProtocol", (GuardedProtocol,), {"limits": service.limits})
        config = uvicorn.Config(
            service,
            http=guarded,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(grace)),
            backlog=BACKLOG,
        )
        super().__init__(config)
        # What it says of requests that cannot be read would fill a log with whatever strangers send.
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        self.service = service

    def stop(self) -> None:
        """Begin to end; a second time, end at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.service.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on signals, and leave the exit code to the caller."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for each in signals:
            loop.add_signal_handler(each, self.stop)
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; ConfigError when it cannot be."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            # From here on nobody is turned away, though it may take a moment until they are served.
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    bound.set_inheritable(False)
    return bound
