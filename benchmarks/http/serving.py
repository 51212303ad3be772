"""A service in a process of its own, and a client of few words for it."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.spawn import Failed
from penstock.service.auth.development import DevelopmentKey

TENANT = "default"


def file_url(folder: Path) -> str:
    """The store of a case."""
    return f"sqlite:///{folder / 'jobs.db'}"


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """The address of a service over the file in the folder, and a token for it."""
    key = DevelopmentKey.make()
    command = [sys.executable, "-m", "penstock.cli", "serve", "--url", file_url(folder)]
    command += ["--port", "0", "--log-level", "warning", "--json", "--key", key.text]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise Failed("the service did not start")
        token = key.mint(tenants=[TENANT], subject="bench", scopes=["*"], seconds=3_600, now=time.time())
        yield json.loads(line)["address"], token
    finally:
        process.terminate()
        process.wait(timeout=60)


class Connection:
    """One connection that is kept; a request is one write, an answer two reads."""

    def __init__(self, address: str, token: str) -> None:
        self._host, _, port = address.removeprefix("http://").rpartition(":")
        self._port = int(port)
        self._about = f"Host: bench\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"

    async def __aenter__(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The answer's body; Failed when it is a refusal."""
        head = f"{method} {path} HTTP/1.1\r\n{self._about}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        size = next(int(line[16:]) for line in lines if line.startswith(b"content-length: "))
        found = await self._reader.readexactly(size)
        if not answer.startswith(b"HTTP/1.1 20"):
            raise Failed(f"{method} {path}: {found.decode()}")
        return found
