"""A fresh store, and `penstock serve` over it in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.postgres import server as postgres
from benchmarks.spawn import ROOT, Failed
from penstock.service.auth.development import DevelopmentKey

TITLES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(slots=True)
class Reached:
    """A way to the store: what the runner of workers wants to know of a server."""

    url: str

    def spent(self) -> float:
        """Not measured here."""
        return 0.0

    def listeners(self) -> int:
        """Not counted here."""
        return 0


@dataclass(frozen=True, slots=True)
class Place:
    """One store: its own url, the url of the remote store, and the service's address with a token."""

    direct: Reached
    remote: Reached
    address: str
    token: str


@contextmanager
def running(store: str, folder: Path) -> Iterator[Place]:
    """A place with nothing in it; gone at the end of the block."""
    if store == "sqlite":
        with _served(f"sqlite:///{folder / 'jobs.db'}", folder) as place:
            yield place
    else:
        with postgres.running() as server, _served(server.url, folder) as place:
            yield place


@contextmanager
def _served(url: str, folder: Path) -> Iterator[Place]:
    command = [sys.executable, "-m", "penstock.cli", "serve", "--url", url, "--port", "0", "--json"]
    with (folder / "service.log").open("wb") as log:
        service = subprocess.Popen(
            [*command, "--log-level", "warning"], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert service.stdout is not None
        line = service.stdout.readline()
        if not line:
            raise Failed(f"the service did not begin\n{(folder / 'service.log').read_text()}")
        said = json.loads(line)
        token = DevelopmentKey.read(said["key"]).mint(
            tenants=["default"], subject="bench", scopes=["*"], seconds=3_600, now=time.time()
        )
        scheme, _, rest = said["address"].partition("://")
        yield Place(Reached(url), Reached(f"{scheme}://{token}@{rest}"), said["address"], token)
    finally:
        service.terminate()
        try:
            service.wait(20)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait(5)
