"""Processes that end before their handlers: the worker lives, the attempt counts, nobody is left behind."""

import os
import signal
from pathlib import Path

import pytest

from penstock.core.states import State
from tests.kit.waiting import eventually
from tests.worker.executors.kit import Crew, appears, is_alive, pid_in, result_of

DEATHS = {
    "segfault": ("KILLED: SIGSEGV", "was killed by SIGSEGV"),
    "abort": ("KILLED: SIGABRT", "was killed by SIGABRT"),
    "exit": ("EXITED: 7", "ended with exit code 7"),
    "killed": ("KILLED: SIGKILL", "was killed by SIGKILL, which also the kernel does when memory is short"),
    "half a frame": ("PROTOCOL", "ended in the middle of a frame"),
    "too long a frame": ("PROTOCOL", "sent what is not a frame: a frame of 2147483647 bytes came"),
    "not JSON": ("PROTOCOL", "sent what is not a frame"),
    "closed wire": ("KILLED: SIGKILL", "was killed by SIGKILL"),
    "another's end": ("PROTOCOL", "told the end of a job that it does not have"),
}


async def test_a_death_has_its_reason_in_the_dead_letter_and_the_last_words(crew: Crew) -> None:
    ids = {how: await crew.add("die", how=how) for how in DEATHS}
    after = await crew.add("add", a=1, b=2)
    *dead, other = await crew.run(*ids.values(), after, concurrency=2)

    for (how, (reason, text)), found in zip(DEATHS.items(), dead, strict=True):
        assert (how, found.state, found.attempts, found.reason) == (how, State.DEAD, 1, reason)
        assert text in (found.error or "").splitlines()[0]
        assert f"last words before {how}" in (found.error or "")
    assert result_of(other) == 3


async def test_a_death_is_tried_again_like_an_error(crew: Crew) -> None:
    job = await crew.enqueue("die", b'{"how":"segfault"}', max_attempts=3)
    (found,) = await crew.run(job)

    assert (found.state, found.attempts, found.reason) == (State.DEAD, 3, "KILLED: SIGSEGV")


@pytest.mark.parametrize("then", ["return", "die"])
async def test_a_daemon_does_not_survive_its_job(crew: Crew, tmp_path: Path, then: str) -> None:
    job = await crew.add("daemon", path=str(tmp_path / "pid"), then=then)
    (found,) = await crew.run(job)

    assert found.state is (State.COMPLETED if then == "return" else State.DEAD)
    assert not is_alive(await pid_in(tmp_path / "pid"))


async def test_a_killed_process_takes_its_daemons_along_while_the_worker_goes_on(
    crew: Crew, tmp_path: Path
) -> None:
    async with crew.at_work():
        job = await crew.add("daemon", path=str(tmp_path / "pid"), then="die")
        await crew.ended(job)

        assert not is_alive(await pid_in(tmp_path / "pid"))


async def test_a_killed_fork_server_costs_an_attempt_and_is_made_anew(crew: Crew, tmp_path: Path) -> None:
    async with crew.at_work(concurrency=2) as _:
        job = await crew.add("helper_and_sleep", path=str(tmp_path / "pid"))
        helper = await pid_in(tmp_path / "pid")
        assert crew.host is not None
        os.kill(crew.host.pid, signal.SIGKILL)
        found = await crew.ended(job)
        again = await crew.ended(await crew.add("add", a=1, b=2))

        async def is_gone() -> bool:
            return not is_alive(helper)

        await eventually(is_gone)
    assert (found.reason, result_of(again)) == ("KILLED: SIGKILL", 3)
    assert "its fork server ended" in (found.error or "")


async def test_a_program_that_dies_has_its_reason_and_its_errors_in_the_dead_letter(programs: Crew) -> None:
    jobs = [
        await programs.add("exits", code=3),
        await programs.add("crashes"),
        await programs.add("missing"),
        await programs.add("chats"),
        await programs.add("floods"),
    ]
    exits, crashes, missing, chats, floods = await programs.run(*jobs)

    assert (exits.reason, "it went wrong" in (exits.error or "")) == ("EXITED: 3", True)
    assert crashes.reason == "KILLED: SIGSEGV"
    assert missing.reason == "EXITED: 127"
    assert "cannot run /nowhere/to/be/found: No such file" in (missing.error or "")
    assert (chats.reason, "'Starting up ...'" in (chats.error or "")) == ("PROTOCOL", True)
    assert (floods.reason, "wrote a line of more than" in (floods.error or "")) == ("PROTOCOL", True)


async def test_a_program_that_floods_its_errors_is_bounded_by_its_time(programs: Crew) -> None:
    (found,) = await programs.run(await programs.add("floods_errors"))

    assert found.reason == "TIMEOUT"
    assert len(found.error or "") < 8_100


async def test_what_a_program_started_ends_with_it(programs: Crew, tmp_path: Path) -> None:
    (found,) = await programs.run(await programs.add("leaves_child", path=str(tmp_path / "pid")))

    assert found.state is State.COMPLETED
    assert not is_alive(await pid_in(tmp_path / "pid"))


async def test_the_stack_of_a_hanging_handler_can_be_asked_for(
    crew: Crew, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with crew.at_work():
        job = await crew.add("stack", path=str(tmp_path / "begun"))
        await appears(tmp_path / "begun")
        assert crew.host is not None
        crew.host.dump_stacks()
        shown = ""

        async def is_shown() -> bool:
            nonlocal shown
            shown += capfd.readouterr().err
            return "in stack" in shown

        await eventually(is_shown)
        await crew.store.moves.cancel(crew.queue, [job])
