"""Processes that a supervisor keeps running: real ones, which say by files what they do."""

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.core.retry_pause import RetryPause
from penstock.worker.processes import supervisor as supervising
from penstock.worker.processes.supervisor import Supervisor
from tests.kit.waiting import PATIENCE, until

WORK = """
    import os, signal, sys, time
    from pathlib import Path
    folder = Path(sys.argv[1])
    def end(*_):
        (folder / f"drained-{os.getpid()}").touch()
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    (folder / f"up-{os.getpid()}").touch()
    while True:
        signal.pause()
"""


def command(tmp_path: Path, program: str = WORK) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]


def up(tmp_path: Path) -> set[int]:
    """The processes that have begun."""
    return {int(path.name.removeprefix("up-")) for path in tmp_path.glob("up-*")}


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[asyncio.Task[int]]:
    run = asyncio.create_task(supervisor.run(handle_signals=False))
    try:
        yield run
    finally:
        supervisor.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([run])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "PAUSE", RetryPause(0.0, 0.0))


async def test_as_many_processes_run_as_are_wanted_and_all_drain_at_the_stop(tmp_path: Path) -> None:
    supervisor = Supervisor(command(tmp_path), 3, stop_timeout=0)
    async with running(supervisor) as run:
        await until(lambda: len(up(tmp_path)) == 3)
        assert sorted(supervisor.pids) == sorted(up(tmp_path))

    assert await run == 0
    assert len(list(tmp_path.glob("drained-*"))) == 3


async def test_a_killed_process_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "SETTLED", 0.0)
    supervisor = Supervisor(command(tmp_path), 2, stop_timeout=0)
    async with running(supervisor):
        await until(lambda: len(up(tmp_path)) == 2)
        os.kill(supervisor.pids[0], signal.SIGKILL)
        await until(lambda: len(up(tmp_path)) == 3)
        await until(lambda: len(supervisor.pids) == 2)


async def test_the_idle_ones_are_stopped_first(tmp_path: Path) -> None:
    supervisor = Supervisor(command(tmp_path), 3, stop_timeout=0)
    async with running(supervisor):
        await until(lambda: len(up(tmp_path)) == 3)
        idle = min(up(tmp_path))
        supervisor.resize(2, idle=[idle])
        await until(lambda: (tmp_path / f"drained-{idle}").exists())
        supervisor.resize(4)
        await until(lambda: len(up(tmp_path)) == 5)

        assert len(supervisor.pids) == 4
        assert len(list(tmp_path.glob("drained-*"))) == 1


async def test_replacing_all_starts_new_ones_and_drains_the_old(tmp_path: Path) -> None:
    supervisor = Supervisor(command(tmp_path), 2, stop_timeout=0)
    async with running(supervisor):
        await until(lambda: len(up(tmp_path)) == 2)
        before = up(tmp_path)
        supervisor.replace_all()
        await until(
            lambda: {int(each.name.removeprefix("drained-")) for each in tmp_path.glob("drained-*")} >= before
        )
        await until(lambda: len(up(tmp_path) - before) == 2)

        assert set(supervisor.pids) == up(tmp_path) - before


@pytest.mark.parametrize("code", [1, 2])
async def test_the_first_processes_that_fail_end_the_supervisor(tmp_path: Path, code: int) -> None:
    supervisor = Supervisor(command(tmp_path, f"raise SystemExit({code})"), 2, stop_timeout=0)
    async with running(supervisor) as run:
        async with asyncio.timeout(PATIENCE):
            assert await run == code


async def test_a_process_that_ends_well_is_replaced_at_once(tmp_path: Path) -> None:
    once = """
        import os, sys
        from pathlib import Path
        Path(sys.argv[1], f"up-{os.getpid()}").touch()
    """
    supervisor = Supervisor(command(tmp_path, once), 1, stop_timeout=0)
    async with running(supervisor):
        await until(lambda: len(up(tmp_path)) >= 3)


async def test_a_burst_ends_with_its_processes(tmp_path: Path) -> None:
    supervisor = Supervisor(command(tmp_path, "pass"), 2, stop_timeout=0, is_burst=True)
    async with running(supervisor) as run:
        async with asyncio.timeout(PATIENCE):
            assert await run == 0


async def test_a_process_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "KILL_MARGIN", 0.2)
    deaf = """
        import os, signal, sys
        from pathlib import Path
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(sys.argv[1], f"up-{os.getpid()}").touch()
        while True:
            signal.pause()
    """
    supervisor = Supervisor(command(tmp_path, deaf), 1, stop_timeout=0)
    async with running(supervisor):
        await until(lambda: up(tmp_path))
    assert supervisor.pids == []
