"""A service on a socket, in a thread of the test run, over a store that each address names anew."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final, cast

from penstock.service.app import Service
from penstock.service.auth.authenticator import authenticator_of
from penstock.service.auth.development import DevelopmentKey
from penstock.service.limits import Limits, Receive, Scope, Send
from penstock.service.server import Server, listen
from penstock.stores.protocol import Store
from tests.kit.waiting import PATIENCE

KEY: Final = DevelopmentKey(b"\x07" * 32)


def token(*tenants: str, scopes: tuple[str, ...] = ("*",), lifetime: float = 3_600) -> str:
    """A token for one tenant, or for an operator of all if none is named."""
    return KEY.mint(
        tenants=tenants or ["*"],
        operator=not tenants,
        subject="tests",
        scopes=scopes,
        seconds=lifetime,
        now=time.time(),
    )


class Services:
    """Services on one port, each below a path of its own; the newest one is open, those before are closed."""

    limits = Limits()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)
        self._socket = listen("127.0.0.1", 0)
        # It asks a service for nothing but its limits, and to stop.
        self._server = _InThread(cast(Service, self), grace=1)
        self._service: Service | None = None
        self._path = ""
        self._count = 0

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def serve(self, make: Callable[[], Store], **more: Any) -> str:
        """The url of a service over a new store, without a token. The one before ends."""
        self._await(self._replace(make, more))
        return f"{self.base}{self._path}"

    def end(self) -> None:
        """End the newest one, and leave its store closed."""
        self._await(self._replace(None, {}))

    @property
    def base(self) -> str:
        """Where all of them are."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        """End the last one and the server."""
        self.end()
        self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def stop(self) -> None:
        """Called by the server when it begins to end."""
        if self._service is not None:
            self._service.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, to the service that is open if it is the one that is meant."""
        root = "/" + scope["path"].split("/")[1]
        service = self._service
        if service is None or root != self._path:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await service({**scope, "root_path": root}, receive, send)

    async def _replace(self, make: Callable[[], Store] | None, more: dict[str, Any]) -> None:
        before, self._service = self._service, None
        if before is not None:
            await before.close()
        if make is not None:
            self._count += 1
            service = Service(
                make(),
                **{"authenticator": authenticator_of(None, None, KEY), "allow_clock_control": True, **more},
            )
            await service.open()
            self._path, self._service = f"/{self._count}", service

    def _await(self, work: Any) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(PATIENCE)

    def _run(self) -> None:
        # Commands under test log in this process too: what they print is not about these requests.
        here = threading.get_ident()
        logging.getLogger("penstock.access").addFilter(lambda record: record.thread != here)
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._server.serve([self._socket]))


class _InThread(Server):
    """Hears no signals: those are the main thread's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


@contextlib.contextmanager
def running() -> Iterator[Services]:
    """A server for the time of the block."""
    services = Services()
    services.start()
    try:
        yield services
    finally:
        services.close()
