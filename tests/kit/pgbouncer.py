"""PgBouncer in transaction mode, where it is installed."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg

from tests.kit import postgres
from tests.kit.ports import free_port

_START_SECONDS: Final = 10.0


def binary() -> Path | None:
    """Where it is."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    return Path(found) if found else None


@contextmanager
def running(program: Path, server_port: int, *, connections: int = 2) -> Iterator[str]:
    """The url of a pooler before the server: every transaction may get another one of its connections."""
    with tempfile.TemporaryDirectory(prefix="penstock-pgbouncer-") as name:
        folder = Path(name)
        postgres.hand_over(folder)
        port = free_port()
        (folder / "users.txt").write_text('"postgres" ""\n')
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server_port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder / 'users.txt'}\npool_mode = transaction\n"
            "admin_users = postgres\n"
            f"default_pool_size = {connections}\nmax_client_conn = 100\n"
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, settings], stdout=log, stderr=log, cwd=folder, **postgres.identity()
            )
        try:
            url = postgres.url_at(port)
            _await_answer(process, url)
            yield url
        finally:
            process.terminate()
            process.wait(10)


def _await_answer(process: "subprocess.Popen[bytes]", url: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"PgBouncer ended with status {process.returncode}")
        with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=5):
            return
        time.sleep(0.02)
    raise RuntimeError(f"PgBouncer did not answer within {_START_SECONDS:.0f} s")
