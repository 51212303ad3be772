"""A fresh store, and `penstock serve` over it in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis
from benchmarks.spawn import ROOT, Failed
from penstock.service.auth.development import DevelopmentKey

TITLES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL", "valkey": "Valkey"}


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
    key: str

    def token_of(self, tenant: str) -> str:
        """A token with which a tenant may do everything that is its own."""
        return DevelopmentKey.read(self.key).mint(
            tenants=[tenant], subject="bench", scopes=["*"], seconds=3_600, now=time.time()
        )


@contextmanager
def running(store: str, folder: Path, prepare: Callable[[str], object] = lambda url: None) -> Iterator[Place]:
    """A place with nothing but what `prepare` puts into its store; gone at the end of the block."""
    if store == "sqlite":
        url = f"sqlite:///{folder / 'jobs.db'}"
        prepare(url)
        with _served(url, folder) as place:
            yield place
    elif store == "valkey":
        with redis.running("valkey", folder) as valkey:
            prepare(valkey.url)
            with _served(valkey.url, folder) as place:
                yield place
    else:
        with postgres.running() as server:
            prepare(server.url)
            with _served(server.url, folder) as place:
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
        key = Path(said["key_file"]).read_text("utf-8").strip()
        token = DevelopmentKey.read(key).mint(
            tenants=["default"], subject="bench", scopes=["*"], seconds=3_600, now=time.time()
        )
        scheme, _, rest = said["address"].partition("://")
        yield Place(Reached(url), Reached(f"{scheme}://{token}@{rest}"), said["address"], token, key)
    finally:
        service.terminate()
        try:
            service.wait(20)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait(5)
        if service.stdout is not None:
            service.stdout.close()
