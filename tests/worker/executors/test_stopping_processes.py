"""Timeouts, cancels and lost leases of handlers in processes, and time that their worker has for leases."""

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.core.moves import Move
from penstock.core.states import State
from penstock.worker.clock import boottime
from tests.kit.intercepted import InterceptedStore
from tests.worker.executors.kit import Crew, appears, pid_in, result_of


async def test_a_process_is_killed_at_the_timeout_of_its_job(crew: Crew) -> None:
    (found,) = await crew.run(await crew.add("too_long"))

    assert (found.state, found.reason) == (State.DEAD, "TIMEOUT")
    assert (found.error or "").startswith("TimeoutError: the execution took longer than 0.3 s")
    assert "still at it" in (found.error or "")
    assert "the process was killed by SIGKILL from its worker\n" in (found.error or "")


async def test_a_soft_limit_is_an_exception_that_a_handler_can_make_something_of(crew: Crew) -> None:
    found = await crew.run(await crew.add("softens"), await crew.add("softens_async"))

    assert [result_of(job) for job in found] == ["what was there"] * 2


async def test_a_soft_limit_comes_also_after_a_handler_that_changed_the_signal(crew: Crew) -> None:
    jobs = [await crew.add("softens_once", resets=resets) for resets in (True, False)]
    first, second = await crew.run(*jobs, concurrency=1)

    assert result_of(first) == result_of(second)


async def test_a_soft_limit_that_a_handler_makes_nothing_of_is_a_timeout(crew: Crew) -> None:
    for found in await crew.run(await crew.add("too_soft"), await crew.add("too_soft_async")):
        assert (found.state, found.reason) == (State.DEAD, "TIMEOUT")
        assert (found.error or "").startswith(
            "SoftTimeoutError: the execution took longer than 0.1 s, its soft limit"
        )


async def test_a_cancel_from_anywhere_ends_a_handler_in_a_process_once(crew: Crew, tmp_path: Path) -> None:
    tasks = ("looks", "waits", "sleeps", "deaf")
    async with crew.at_work(lease=1.0, concurrency=len(tasks)):
        jobs = {task: await crew.add(task, path=str(tmp_path / task)) for task in tasks}
        for task in tasks:
            await appears(tmp_path / task)
        await crew.store.moves.cancel(crew.queue, list(jobs.values()))
        found = {task: await crew.ended(job) for task, job in jobs.items()}
        assert result_of(await crew.ended(await crew.add("add", a=1, b=2))) == 3

    assert {task: (job.state, job.reason, job.attempts) for task, job in found.items()} == {
        "looks": (State.COMPLETED, None, 0),
        "waits": (State.CANCELLED, "CANCELLED", 0),
        "sleeps": (State.CANCELLED, "CANCELLED", 0),
        "deaf": (State.CANCELLED, "CANCELLED", 0),
    }
    assert [(tmp_path / task).read_text() for task in ("waits", "sleeps")] == ["cleaned up"] * 2


async def test_a_signal_to_everyone_does_not_end_what_the_worker_waits_for(
    crew: Crew, tmp_path: Path
) -> None:
    async with crew.at_work():
        job = await crew.add("until", path=str(tmp_path / "pid"), end=str(tmp_path / "end"))
        pid = await pid_in(tmp_path / "pid")
        assert crew.host is not None
        for each in (pid, crew.host.pid):
            os.kill(each, signal.SIGTERM)
        (tmp_path / "end").touch()

        assert result_of(await crew.ended(job)) == "finished"


async def test_a_lost_lease_ends_the_process_of_its_handler(crew: Crew, tmp_path: Path) -> None:
    job = await crew.add("deaf", path=str(tmp_path / "begun"))
    async with crew.at_work(lease=1.0):
        await appears(tmp_path / "begun")
        (tmp_path / "begun").unlink()
        await crew.store.clock.advance_clock(3_600_000)
        await crew.reaches(job, State.DEAD)
        assert result_of(await crew.ended(await crew.add("add", a=1, b=2))) == 3

    assert (await crew.job(job)).reason == "LEASE_EXPIRED"


class Beats(InterceptedStore):
    """Notes when leases were renewed."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []

    def clone(self) -> "Beats":
        return self

    async def heartbeat(self, *args: Any, **kwargs: Any) -> Any:
        self.at.append(boottime())
        return await self.real.moves.heartbeat(*args, **kwargs)


async def test_a_handler_that_holds_the_interpreter_for_three_leases_runs_once() -> None:
    store = Beats()
    crew = Crew(store=store)
    job = await crew.add("hold_gil", seconds=9)
    begun = boottime()
    (found,) = await crew.run(job, lease=3.0)
    times = [begun, *(at for at in store.at if at > begun)]
    late = [after - before - 1.0 for before, after in pairwise(times)]

    assert result_of(found) == "done"
    assert (found.delivery, found.attempts) == (1, 0)
    assert await crew.moves(job) == [Move.ENQUEUE, Move.CLAIM, Move.COMPLETE]
    assert len(times) > 8
    assert max(late) <= 1.0
