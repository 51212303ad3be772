"""PgBouncer in transaction mode, where it is installed."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit import postgres
from tests.kit.ports import free_port
from tests.kit.waiting import PATIENCE, block_until


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
            process.wait(PATIENCE)


def _await_answer(process: "subprocess.Popen[bytes]", url: str) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"PgBouncer ended with status {process.returncode}")
        return postgres.can_connect(url)

    block_until(answers, "an answer of PgBouncer")
