"""A place that every user can reach, and programs run there as one crew or another."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sandbox.crew import NOBODY
from tests.sandbox.line import Line
from tests.sandbox.scene import NAME, SECRET

Run = Callable[..., str]
Start = Callable[..., "Future[str]"]


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder that everybody can pass; pytest's own ones are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-sandbox-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        program = folder / "set-id"
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o4755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def run(place: Path) -> Run:
    """Runs a module as a crew, with a folder of its own as the first argument; what it prints."""

    def run(crew: str, module: str, *arguments: str) -> str:
        folder = Path(tempfile.mkdtemp(prefix=f"{crew}-", dir=place))
        folder.chmod(0o755)
        if os.geteuid() == 0 and not crew.startswith("root"):
            os.chown(folder, NOBODY, NOBODY)
        done = subprocess.run(
            [sys.executable, "-m", "tests.sandbox.crew", crew, module, str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=250,
            env=os.environ | {NAME: SECRET},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def start(run: Run) -> Iterator[Start]:
    """As `run`, beside the tests: two at a time, in their order."""
    with ThreadPoolExecutor(2) as pool:
        yield lambda *arguments: pool.submit(run, *arguments)


@pytest.fixture
def line() -> Iterator[Line]:
    """A line for one test."""
    made = Line()
    yield made
    os.close(made.hear)
