"""A service in a process of its own, over a SQLite file, with little patience: `python -m … FOLDER`."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.service.auth.development import DevelopmentKey
from penstock.service.egress.policy import EgressPolicy
from penstock.service.full_service import full_service
from penstock.service.limits import Limits
from penstock.service.server import Server, listen
from penstock.stores.sqlite import SqliteStore

LIMITS: Final = Limits(
    body_bytes=1 << 20,
    head_timeout=1.0,
    body_timeout=2.0,
    send_timeout=2.0,
    connections=300,
)
PATIENCE: Final = 60.0
"""Seconds after which a test gives up waiting; nothing is expected to be fast."""


class Serving:
    """The process as its clients see it."""

    def __init__(self, process: int, port: int, token: str) -> None:
        self.process = process
        self.port = port
        self.token = token

    def connect(self) -> socket.socket:
        """A connection on which anything can be sent."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """An honest request on a connection of its own: status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            about = {"authorization": f"Bearer {self.token}", "content-type": "application/json", **headers}
            connection.request(method, path, body, about)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def works(self) -> None:
        """Others are served: a job can be made."""
        status, said = self.ask("POST", "/v1/queues/mail/jobs", b'{"task": "send"}')

        assert status == 201, said

    @property
    def memory(self) -> int:
        """Bytes of memory that the process has."""
        pages = int(Path(f"/proc/{self.process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def serving(folder: Path, *, killed: bool = False) -> Iterator[Serving]:
    """Such a process for the time of the block; alive at its end, it ends when told then, or is killed."""
    command = [sys.executable, "-m", "tests.reliability.serving", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            said: dict[str, Any] = json.loads(process.stdout.readline())
            yield Serving(process.pid, said["port"], said["token"])
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
            assert process.wait(PATIENCE) == (-signal.SIGKILL if killed else 0)


async def _serve(folder: Path) -> None:
    key = DevelopmentKey.make()
    inwards = EgressPolicy.of(allow="127.0.0.1", ports="1-65535", plain=True)
    service = full_service(SqliteStore(folder / "jobs.db"), key=key, limits=LIMITS, egress=inwards)
    with listen("127.0.0.1", 0) as bound:
        async with service:
            token = key.mint(tenants=["acme"], subject="a", scopes=["*"], seconds=3_600, now=time.time())
            print(json.dumps({"port": bound.getsockname()[1], "token": token}), flush=True)
            await Server(service, grace=5).serve([bound])


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
