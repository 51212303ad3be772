"""What a fork server imports: the app, and the handlers, wherever they are defined."""

import subprocess
import sys
from pathlib import Path

import pytest

QUEUE = """
from penstock import Penstock

app = Penstock("sqlite:///jobs.db")
work = app.queue("work", executor="process", max_attempts=1)
"""
TASKS = """
import os
from proj.q import work

@work.task
def where() -> int:
    return os.getpid()
"""
WORKER = """
from proj import tasks
from proj.q import app
"""
EMBEDDED = """
import asyncio
from proj import tasks
from proj.q import app

async def main() -> None:
    await app.worker(burst=True).run()

if __name__ == "__main__":
    asyncio.run(main())
"""
SCRIPT_WITH_TASKS = """
import asyncio, os
from proj.q import app, work

@work.task
def where() -> int:
    return os.getpid()

async def main() -> None:
    await app.worker(burst=True).run()

if __name__ == "__main__":
    asyncio.run(main())
"""
ONCE = """
from pathlib import Path
from proj.q import app, work

if not Path("imported").exists():
    Path("imported").touch()

    @work.task
    def once() -> None: ...
"""
PENSTOCK = [sys.executable, "-m", "penstock.cli"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "proj"
    folder.mkdir()
    files = {"__init__": "", "q": QUEUE, "tasks": TASKS, "worker": WORKER, "once": ONCE}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (tmp_path / "embedded.py").write_text(EMBEDDED)
    (tmp_path / "script.py").write_text(SCRIPT_WITH_TASKS)
    return tmp_path


def run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)


def enqueue(project: Path) -> None:
    done = run(project, *PENSTOCK, "enqueue", "where", "--queue", "work", "--app", "proj.worker:app")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "start",
    [
        [*PENSTOCK, "worker", "proj.worker:app", "--burst"],
        [sys.executable, "embedded.py"],
        [sys.executable, "script.py"],
    ],
    ids=["command", "embedded", "script"],
)
def test_handlers_may_be_in_other_files_than_the_app(project: Path, start: list[str]) -> None:
    enqueue(project)
    worked = run(project, *start)
    listed = run(project, *PENSTOCK, "jobs", "list", "--url", "sqlite:///jobs.db")

    assert worked.returncode == 0, worked.stderr
    assert "completed" in listed.stdout, worked.stderr


def test_a_worker_whose_fork_server_lacks_a_task_does_not_start(project: Path) -> None:
    done = run(project, *PENSTOCK, "worker", "proj.once:app", "--burst")

    assert done.returncode != 0
    assert "processes would not know the task 'once'" in done.stderr
