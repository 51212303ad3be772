"""Jobs as programs: a line in, lines out, the exit code decides."""

from pathlib import Path

import msgspec
import pytest

from penstock.core.errors import OptionError
from penstock.core.states import State
from penstock.tasks.context import JobContext
from penstock.worker.executors.subprocess.lines import said
from tests.worker.executors.handlers import programs as queue
from tests.worker.executors.kit import Crew, appears, result_of


async def test_a_program_gets_its_job_as_a_line_and_answers_with_lines(programs: Crew) -> None:
    (found,) = await programs.run(await programs.add("echo", value={"text": "two\nlines"}))

    assert result_of(found) == [{"text": "two\nlines"}, 1, "echo"]
    assert found.progress == b"1"


async def test_a_programs_input_ends_after_its_line(programs: Crew) -> None:
    job = await programs.add("read_all")
    (found,) = await programs.run(job)

    assert result_of(found) == job


async def test_a_large_payload_reaches_a_program(programs: Crew) -> None:
    (found,) = await programs.run(await programs.add("echo", value="x" * 500_000))

    assert len(result_of(found)[0]) == 500_000


async def test_the_exit_code_decides_also_after_a_result(programs: Crew) -> None:
    jobs = [await programs.add("says", word="result", value=5, code=code) for code in (0, 1)]
    good, bad = await programs.run(*jobs)

    assert result_of(good) == 5
    assert (bad.state, bad.reason, bad.result) == (State.DEAD, "EXITED: 1", None)


async def test_a_program_steers_its_job(programs: Crew) -> None:
    words = {"retry": 20.0, "snooze": 30.0, "fail": "no such order", "cancel": "not wanted"}
    ids = {}
    for word, value in words.items():
        payload = msgspec.json.encode({"word": word, "value": value})
        ids[word] = await programs.enqueue("says", payload, max_attempts=2)
    await programs.burst()
    jobs = {word: await programs.job(job) for word, job in ids.items()}

    assert (jobs["retry"].state, jobs["retry"].attempts) == (State.DELAYED, 1)
    assert (jobs["snooze"].state, jobs["snooze"].attempts) == (State.DELAYED, 0)
    assert (jobs["fail"].state, jobs["fail"].error) == (State.FAILED, "no such order")
    assert jobs["cancel"].state is State.CANCELLED


@pytest.mark.parametrize("line", [{"retry": -5}, {"retry": 1e300}, {"snooze": -1}, {"snooze": 604_801}])
def test_a_delay_that_cannot_be_is_no_line_of_the_protocol(line: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"(retry|snooze): wanted seconds from 0 to 604800"):
        said(msgspec.json.encode(line))


async def test_a_program_that_asks_for_another_attempt_after_the_last_has_no_traceback(
    programs: Crew,
) -> None:
    (found,) = await programs.run(await programs.add("says", word="retry", value=5))

    assert (found.reason, found.error) == (
        "MAX_ATTEMPTS",
        "Retry: the program asked for another attempt after 5 s",
    )


async def test_no_result_has_to_be_what_the_function_declares(programs: Crew) -> None:
    (found,) = await programs.run(await programs.add("says_nothing"))

    assert (found.state, (found.error or "")[:20]) == (State.DEAD, "PayloadError: result")


async def test_calls_of_a_program_are_checked_against_the_function(programs: Crew) -> None:
    (found,) = await programs.run(await programs.add("exits", code="three"))

    assert found.reason == "INVALID_PAYLOAD"


async def test_a_programs_soft_limit_is_sigterm(programs: Crew) -> None:
    (found,) = await programs.run(await programs.add("soft_program"))

    assert found.reason == "TIMEOUT"
    assert (found.error or "").startswith("SoftTimeoutError: the process was killed by SIGTERM")


async def test_a_cancel_ends_a_program(programs: Crew, tmp_path: Path) -> None:
    tasks = ("sleeps_long", "listens", "deaf_program")
    async with programs.at_work(lease=1.0, concurrency=len(tasks)):
        jobs = [await programs.add(task, path=str(tmp_path / task)) for task in tasks]
        for task in tasks:
            await appears(tmp_path / task)
        await programs.store.moves.cancel(programs.queue, jobs)
        found = [await programs.ended(job) for job in jobs]

    assert [(job.state, job.attempts) for job in found] == [(State.CANCELLED, 0)] * 3
    assert (tmp_path / "listens").read_text() == "told"


def test_a_program_needs_its_executor_and_the_other_way_round() -> None:
    def task(ctx: JobContext) -> None: ...

    with pytest.raises(OptionError, match=r"program: found None, wanted what executor='subprocess' starts"):
        queue.task(name="a", executor="subprocess")(task)
    with pytest.raises(OptionError, match=r"program: .* wanted executor='subprocess' beside it"):
        queue.task(name="a", executor="process", program=["true"])(task)
    with pytest.raises(OptionError, match=r"listens: found True, wanted a program beside it"):
        queue.task(name="a", executor="process", listens=True)(task)
    with pytest.raises(OptionError, match=r"sandbox: found 'best-effort', wanted permissions beside it"):
        queue.task(name="a", executor="process", sandbox="best-effort")(task)
    with pytest.raises(OptionError, match="program: found 'true', wanted a program and its arguments"):
        queue.task(name="a", program="true")(task)
    with pytest.raises(
        OptionError, match="executor: found 'thread', wanted one of inline, process, subprocess"
    ):
        queue.task(name="a", executor="thread")(task)  # type: ignore[call-overload]
