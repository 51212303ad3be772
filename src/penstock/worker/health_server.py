"""Health over HTTP and to systemd, from a thread of its own.

The server answers GET and HEAD for the paths of `HealthServer.routes`, one request per connection; more
paths are added there before it starts.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Final

import msgspec

from penstock.core.errors import ConfigError
from penstock.worker.health import WorkerHealth
from penstock.worker.systemd import SystemdNotifier

HEAD_BYTES: Final = 8_192
"""The longest request head."""
CLIENT_SECONDS: Final = 5.0
"""Seconds that a client has to send its request, and to take the answer."""
MOST_CONNECTIONS: Final = 32
"""Connections that are served at a time; others are closed."""
NOTIFY_SECONDS: Final = 1.0
"""Seconds between two looks at what systemd is to be told."""
JOIN_SECONDS: Final = 2.0


class HealthAnswer(msgspec.Struct, frozen=True):
    """The answer of a path."""

    status: HTTPStatus
    body: bytes
    media_type: str = "application/json"


HealthRoute = Callable[[], Awaitable[HealthAnswer]]


class HealthServer:
    """Listens from the moment it is made, and answers while its thread runs.

    ConfigError where it cannot listen.
    """

    def __init__(self, health: WorkerHealth, host: str, port: int) -> None:
        self._health = health
        self._socket = _listening(host, port)
        self.routes: dict[str, HealthRoute] = {"/health/live": self._live, "/health/ready": self._ready}
        """The answers by path. They are made on the event loop of the thread."""
        self._connections = 0

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._socket.getsockname()[1])

    async def serve(self) -> None:
        """Answer until cancelled."""
        server = await asyncio.start_server(self._serve_client, sock=self._socket, limit=HEAD_BYTES)
        async with server:
            await server.serve_forever()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    async def _live(self) -> HealthAnswer:
        faults = self._health.faults()
        return _answer("; ".join(faults) if faults else None)

    async def _ready(self) -> HealthAnswer:
        return _answer(await self._health.unready())

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MOST_CONNECTIONS:
                async with asyncio.timeout(CLIENT_SECONDS):
                    await self._answer_request(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Probes go away as they like.
            pass
        finally:
            self._connections -= 1
            writer.close()

    async def _answer_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        route = self.routes.get(path)
        if method not in ("GET", "HEAD"):
            answer = _answer(f"found {method[:20]}, wanted GET", HTTPStatus.METHOD_NOT_ALLOWED)
        elif route is None:
            answer = _answer(f"wanted one of {', '.join(self.routes)}", HTTPStatus.NOT_FOUND)
        else:
            answer = await route()
        lines = [
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            f"content-type: {answer.media_type}",
            f"content-length: {len(answer.body)}",
            "cache-control: no-store",
            "connection: close",
        ]
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("allow: GET, HEAD")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if method != "HEAD":
            writer.write(answer.body)
        await writer.drain()


def _answer(fault: str | None, status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE) -> HealthAnswer:
    """The answer of the same form as that of the HTTP service."""
    if fault is None:
        return HealthAnswer(HTTPStatus.OK, b'{"status":"ok"}')
    return HealthAnswer(status, msgspec.json.encode({"status": fault}))


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=MOST_CONNECTIONS)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"health_port: cannot listen on {host}:{port}: {why.lower()}") from None


@contextmanager
def watched(health: WorkerHealth, server: HealthServer | None) -> Iterator[None]:
    """Answer probes, and tell systemd where it asks for that, for the time of the block."""
    systemd = SystemdNotifier.of(os.environ)
    if server is None and systemd is None:
        yield
        return
    thread = _HealthThread(health, server, systemd)
    thread.start()
    try:
        yield
    finally:
        thread.stop()
        if systemd is not None:
            systemd.send("STOPPING=1")
        if server is not None:
            server.close()


class _HealthThread:
    def __init__(
        self, health: WorkerHealth, server: HealthServer | None, systemd: SystemdNotifier | None
    ) -> None:
        self._health = health
        self._server = server
        self._systemd = systemd
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        # A closed loop has nothing left to stop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        works = [] if self._server is None else [self._server.serve()]
        if self._systemd is not None:
            works.append(self._tell(self._systemd))
        tasks = [asyncio.create_task(work) for work in works]
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, systemd: SystemdNotifier) -> None:
        """Tell systemd when the worker is ready, stops, and lives."""
        seconds = min(NOTIFY_SECONDS, (systemd.watchdog_seconds or NOTIFY_SECONDS) / 2)
        is_ready = is_stopping = False
        while True:
            if not is_ready and await self._health.unready() is None:
                is_ready = True
                systemd.send("READY=1")
            if not is_stopping and self._health.is_stopping:
                is_stopping = True
                systemd.send("STOPPING=1")
            if systemd.watchdog_seconds is not None and not self._health.faults():
                systemd.send("WATCHDOG=1")
            taken, slots = self._health.slots
            systemd.send(f"STATUS={taken} of {slots} slots are taken")
            await asyncio.sleep(seconds)
