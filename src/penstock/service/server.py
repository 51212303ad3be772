"""Serves the service on a socket: uvicorn, with bounds on slow and large requests."""

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
from penstock.service.acceptor import Acceptor
from penstock.service.app import Service
from penstock.service.connections import ConnectionAdmission, ConnectionKind, peer_of
from penstock.service.health_only import HealthOnly
from penstock.service.limits import CONNECTION, Limits
from penstock.service.problems import MEDIA_TYPE, Problem

KEEP_ALIVE: Final = 30
"""Seconds that a connection without a request is kept."""
BACKLOG: Final = 1_024
PARSED_AT_ONCE: Final = 2_048
"""Bytes after which the server looks whether a request waits for another one on its connection."""
_TITLES: Final = {
    400: ("malformed", "The request cannot be read"),
    408: ("slow", "The request took too long to arrive"),
    431: ("head-too-large", "The headers are too large or too many"),
    503: ("busy", "Too many connections"),
}


class GuardedProtocol(HttpToolsProtocol):
    """HTTP/1.1 within `Limits`: a head that comes slowly, or is too large, ends the connection."""

    limits = Limits()
    admission = ConnectionAdmission(limits)

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.peer = ""
        self._unread_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._is_between = False
        self._is_busy = False
        self._left: int | None = None
        self._head_bytes = 0
        self._weight = 0
        self._unparsed = b""
        self._why = 400

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self.peer = peer_of(self.client[0] if self.client else None)
        if self.admission.admit(self) is ConnectionKind.RESERVED:
            self.app = HealthOnly(self.app)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers of the connection."""
        self._stop_waiting()
        self.admission.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, as far as the next request that waits for the answer to the one before.

        Requests that a client sends in advance cost little until it is their turn.
        """
        if self._unparsed:
            self._unparsed += data
            return
        for start in range(0, len(data), PARSED_AT_ONCE):
            self._parse(data[start : start + PARSED_AT_ONCE])
            if self.transport.is_closing():
                return
            if self.pipeline:
                self._unparsed = data[start + PARSED_AT_ONCE :]
                return

    def _parse(self, data: bytes) -> None:
        """Parse some bytes; between two requests the time for the next head begins with its first byte."""
        if self.transport.is_closing():
            return
        if self._is_between:
            self._is_between = False
            self._expect_head()
            self._note_phase()
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
        """Keep a header within the limits. The parser also calls this for trailers, which are dropped."""
        self._weigh(len(name) + len(value))
        if not self._in_head:
            # The request was routed and authenticated by its head; a proxy in front saw no trailers either.
            return
        super().on_header(name, value)
        if len(self.headers) > self.limits.headers:
            self._weigh(self.limits.head_bytes + 1)

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the path and query."""
        self._weigh(len(url))
        super().on_url(url)

    def on_message_begin(self) -> None:
        """Another head begins, maybe before the last request was answered."""
        self._weight = 0
        if not self._in_head:
            self._expect_head()
        if len(self.pipeline) >= self.limits.pipelined:
            # Each of them costs much more memory than the bytes that it came in.
            raise ValueError("too many requests wait on this connection")
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._stop_waiting()
        # It fails for an address that cannot be read: then there is no request yet, and still a head.
        super().on_headers_complete()
        self._in_head = False
        self._is_busy = True
        self._note_phase()
        if self.parser.should_upgrade():
            # The parser reads no further request on this connection: a client must not wait for its answer.
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """What is left of a request that is answered already is passed over, within bounds."""
        was_last = not self.pipeline
        self._is_busy = not was_last
        super().on_response_complete()
        if was_last and self.cycle.more_body:
            # A client that is still sending would not see the response if the connection ended here.
            self._left = self.limits.body_bytes
            self._unset_keepalive_if_required()
            self._wait(self.transport.close)
        elif was_last:
            self._is_between = True
        self._note_phase()
        if self._unparsed:
            if self.pipeline:
                self.flow.pause_reading()
            else:
                unparsed, self._unparsed = self._unparsed, b""
                self.data_received(unparsed)

    def on_message_complete(self) -> None:
        """The rest of a request that was answered before is there: the connection may be used again."""
        super().on_message_complete()
        if self._left is not None:
            self._left = None
            self._is_between = True
            self._stop_waiting()
            self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE, self.timeout_keep_alive_handler)
        self._note_phase()

    def pause_writing(self) -> None:
        """The client does not read what it is sent."""
        super().pause_writing()
        self._note_phase()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._unread_since = None
        self._note_phase()

    def evict(self) -> None:
        """Close the connection at once to make room; a client in the middle of a request is told why."""
        if self._is_busy or (self._in_head and self._head_bytes):
            self._refuse(503)
        self.transport.close()
        if self.transport.get_write_buffer_size():
            # Closing waits until the client has read all of it.
            self.transport.abort()

    def abort_if_unread(self, now: float) -> None:
        """End the connection when its client has not read what it was sent in time.

        A handler gives up by itself, but then closing the connection waits until all is read.
        """
        if not self.transport.is_closing() and not self.flow.write_paused:
            return
        if self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > self.limits.send_timeout:
            self.transport.abort()

    def identified(self, tenant: str) -> None:
        """A token of this tenant was accepted; BusyError where the tenant has too many connections."""
        self.admission.identified(self, tenant)

    def refused(self) -> None:
        """The request is refused after a pause, in which the connection may be closed for another one."""
        self.admission.waits(self)

    def _note_phase(self) -> None:
        if self._is_busy and not self.cycle.more_body and not self.flow.write_paused:
            self.admission.works(self)
        else:
            self.admission.waits(self)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be parsed."""
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
        if self._is_busy and (self._in_head or self.pipeline or self.cycle.response_started):
            # It would pass for the answer to a request before this one, or for a part of it.
            self.transport.close()
            return
        slug, title = _TITLES[status]
        problem = Problem(type=f"urn:penstock:{slug}", title=title, status=status, detail=title)
        body = msgspec.json.encode(problem)
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
        )
        if status == 503:
            head += "retry-after: 1\r\n"
        head += "\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()


class Server(uvicorn.Server):
    """Ends gracefully on SIGTERM and Ctrl-C: waiting requests end at once, running ones are answered."""

    def __init__(self, service: Service, *, grace: float) -> None:
        self.admission = ConnectionAdmission(service.limits)
        own = {"limits": service.limits, "admission": self.admission}
        guarded = type("GuardedProtocol", (GuardedProtocol,), own)
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
        )
        super().__init__(config)
        # What it says of requests that cannot be read would fill a log with whatever strangers send.
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        self.service = service
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections on these sockets, which listen already."""
        self.servers = []
        for bound in sockets or []:
            self._acceptors.append(Acceptor(bound, self._protocol, self.admission.relieve))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and answer what runs."""
        for acceptor in self._acceptors:
            acceptor.stop()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Also end connections that are closed and never read."""
        if counter % 5 == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, GuardedProtocol):
                    connection.abort_if_unread(now)
        return await super().on_tick(counter)

    def _protocol(self) -> asyncio.Protocol:
        protocol = self.config.http_protocol_class
        own: dict[str, Any] = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        return protocol(**own)

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
            # From here on clients connect, though the server may accept them a moment later.
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    bound.set_inheritable(False)
    return bound
