"""Handlers in kept processes: what they get, what comes back, how long their processes are kept."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.app.place import place_of
from penstock.core.errors import ConfigError, HandlerError, OptionError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.tasks.context import JobContext
from penstock.telemetry.nonblocking_stderr import STDERR
from penstock.worker.executors.process.host import Host
from penstock.worker.executors.process.wire import FrameError, Frames, Start
from penstock.worker.worker import Worker
from tests.kit.waiting import PATIENCE
from tests.worker.executors import handlers
from tests.worker.executors.handlers import app
from tests.worker.executors.kit import WORK, Crew, is_alive, pid_in, result_of


async def test_plain_and_async_handlers_return_through_the_wire(crew: Crew) -> None:
    jobs = [await crew.add("add", a=1, b=2), await crew.add("add_async", a=3, b=4)]

    assert [result_of(job) for job in await crew.run(*jobs)] == [3, 7]


async def test_the_context_in_a_process_says_what_it_says_in_the_worker(crew: Crew) -> None:
    job = await crew.add("describe")
    (found,) = await crew.run(job, name="w1")
    said = result_of(found)

    assert said.pop("enqueued_at") * 1000 == pytest.approx(found.enqueued_at)
    assert said == {
        "id": job,
        "task": "describe",
        "queue": "work",
        "tenant": "default",
        "worker": "w1",
        "attempt": 1,
        "max_attempts": 1,
        "delivery": 1,
        "drive": 1,
        "fence": found.fence,
        "priority": 5,
        "key": None,
        "has_deadline": True,
    }


async def test_a_standard_error_that_nobody_reads_holds_up_no_worker(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "__stderr__", stream)
        (found,) = await crew.run(await crew.add("print_much", count=300))
        # What still waits goes into a pipe without readers, and so at once.
        os.close(reads)
        STDERR.flush()

    assert found.state == "completed"


async def test_no_result_has_to_be_what_the_function_declares(crew: Crew) -> None:
    (found,) = await crew.run(await crew.add("return_nothing"))

    assert (found.state, (found.error or "")[:20]) == (State.DEAD, "PayloadError: result")


async def test_progress_comes_through_the_wire(crew: Crew) -> None:
    (found,) = await crew.run(await crew.add("report", value={"done": 7}))

    assert found.progress == b'{"done":7}'


async def test_progress_that_is_no_json_is_the_handlers_error(crew: Crew) -> None:
    job = await crew.add("report", value="x" * (1 << 17))
    (found,) = await crew.run(job)

    assert (found.reason, (found.error or "")[:23]) == ("MAX_ATTEMPTS", "PayloadError: progress:")


async def test_an_error_comes_back_with_its_type_its_text_and_its_traceback(crew: Crew) -> None:
    (found,) = await crew.run(await crew.add("steer", how="this"))
    error = found.error or ""

    assert found.reason == "MAX_ATTEMPTS"
    assert error.startswith("LookupError: this\n\nTraceback")
    assert "raise LookupError(how)" in error
    assert "penstock/worker" not in error


async def test_a_handler_in_a_process_steers_its_job(crew: Crew) -> None:
    for how in ("retry", "snooze", "fail", "cancel"):
        await crew.enqueue("steer", msgspec.json.encode({"how": how}), max_attempts=2)
    await crew.burst()
    jobs = {msgspec.json.decode(job.payload)["how"]: job for job in await _all(crew)}

    assert (jobs["retry"].state, jobs["retry"].attempts) == (State.DELAYED, 1)
    assert (jobs["retry"].error or "").startswith("Retry: busy")
    assert (jobs["snooze"].state, jobs["snooze"].attempts) == (State.DELAYED, 0)
    assert (jobs["fail"].state, jobs["fail"].error) == (State.FAILED, "no such order")
    assert jobs["cancel"].state is State.CANCELLED


async def test_an_exit_in_a_handler_is_an_error_and_not_a_death(crew: Crew) -> None:
    (found,) = await crew.run(await crew.add("steer", how="exit"))

    assert (found.reason, (found.error or "").splitlines()[0]) == ("MAX_ATTEMPTS", "SystemExit: 3")


async def test_arguments_are_checked_by_the_code_that_gets_them(crew: Crew) -> None:
    (found,) = await crew.run(await crew.add("add", a="one", b=2))

    assert found.reason == "INVALID_PAYLOAD"
    assert (found.error or "").startswith("PayloadError: a: found str")


async def test_a_process_is_used_again(crew: Crew) -> None:
    jobs = [await crew.add("pid") for _ in range(5)]
    found = await crew.run(*jobs, concurrency=1)

    assert len({result_of(job) for job in found}) == 1


async def test_tasks_do_not_share_processes(crew: Crew) -> None:
    jobs = [await crew.add("pid"), await crew.add("pid_of_two")]
    found = await crew.run(*jobs, concurrency=1)

    assert len({result_of(job) for job in found}) == 2


async def test_tasks_that_take_turns_keep_their_processes(crew: Crew) -> None:
    jobs = [await crew.add(name) for name in ("pid", "pid_too") * 2]
    first, second, third, fourth = [result_of(job) for job in await crew.run(*jobs, concurrency=1)]

    assert (first, second) == (third, fourth)


async def test_an_idle_process_makes_room_for_another_task(crew: Crew) -> None:
    jobs = [await crew.add(name) for name in ("pid", "pid_too", "pid_of_two", "pid")]
    first, _, _, last = [result_of(job) for job in await crew.run(*jobs, concurrency=1)]

    assert first != last


async def test_a_process_ends_after_its_number_of_jobs(crew: Crew) -> None:
    jobs = [await crew.add("pid_of_two") for _ in range(4)]
    first, second, third, fourth = [result_of(job) for job in await crew.run(*jobs, concurrency=1)]

    assert first == second != third == fourth


async def test_a_process_that_has_grown_ends_after_its_job(crew: Crew) -> None:
    jobs = [await crew.add("pid_of_growing") for _ in range(2)]
    first, second = [result_of(job) for job in await crew.run(*jobs, concurrency=1)]

    assert first != second


async def test_a_job_that_leaves_a_process_behind_loses_it_and_its_own(crew: Crew, tmp_path: Path) -> None:
    pids = []
    async with crew.at_work(concurrency=1):
        for name in ("a", "b"):
            job = await crew.add("helper", path=str(tmp_path / name))
            pids.append(result_of(await crew.ended(job)))
            assert not is_alive(await pid_in(tmp_path / name))

    assert pids[0] != pids[1]


async def test_much_that_a_handler_prints_holds_up_nobody(
    crew: Crew, capfd: pytest.CaptureFixture[str]
) -> None:
    (found,) = await crew.run(await crew.add("print_much", count=20_000))

    assert result_of(found) == "done"
    assert "the rest is left out" in capfd.readouterr().err


@pytest.mark.parametrize("task", ["with_store", "enqueueing", "with_blocking"])
async def test_a_handler_in_a_process_has_no_store(crew: Crew, task: str) -> None:
    (found,) = await crew.run(await crew.add(task))

    told = "ConfigError: a handler in a process has no store: let it make jobs with ctx.spawn"
    assert (found.error or "").startswith(told)


async def test_middleware_is_around_the_execution_in_the_worker(crew: Crew) -> None:
    seen: list[Any] = []

    async def watch(ctx: JobContext, call_next: Any) -> Any:
        try:
            value = await call_next()
        except HandlerError as error:
            seen.append((ctx.task, error.kind, error.message))
            raise
        seen.append((ctx.task, value))
        return value * 10

    jobs = [await crew.add("add", a=1, b=2), await crew.add("steer", how="this")]
    good, _ = await crew.run(*jobs, middleware=[watch], concurrency=1)

    assert seen == [("add", 3), ("steer", "LookupError", "this")]
    assert result_of(good) == 30


async def test_an_app_that_cannot_be_imported_stops_the_worker_before_it_claims(crew: Crew) -> None:
    job = await crew.add("add", a=1, b=2)
    start = msgspec.structs.replace(place_of(app), module="tests.worker.executors.nowhere")
    worker = Worker(crew.store, WORK, app.registry, host=Host(start))

    with pytest.raises(ConfigError, match="the app cannot be imported: ModuleNotFoundError: No module named"):
        await worker.run()
    assert (await crew.job(job)).state is State.PENDING


async def test_a_task_that_the_fork_servers_app_does_not_have_is_told(crew: Crew) -> None:
    job = await crew.add("add", a=1, b=2)
    start = msgspec.structs.replace(place_of(app), module="tests.worker.executors.empty")
    worker = Worker(crew.store, WORK, app.registry, host=Host(start), burst=True, tick=60.0)
    await worker.run()
    found = await crew.job(job)

    assert found.reason == "NO_PROCESS"
    assert "no task is named 'add' in the app that the fork server imported" in (found.error or "")


async def test_the_children_of_a_flow_are_known_and_made_through_the_wire() -> None:
    with app.using(MemoryStore()):
        async with app:
            flow = app.flow()
            before = [flow.add(handlers.add.call(1, 2)), flow.add(handlers.add_async.call(3, 4))]
            seen = [flow.add(task.call(), after=before) for task in (handlers.family, handlers.family_async)]
            handle = await flow.enqueue()
            spawner = await handlers.spawn.enqueue()
            await app.worker(["work"], burst=True).run()
            spawned = await spawner.result(PATIENCE)

            assert [await handle[each].result(PATIENCE) for each in seen] == [[3, 7], [3, 7]]
            assert [await app.job("work", each).result(PATIENCE) for each in spawned] == [3, 7]


async def test_a_worker_can_have_processes_for_what_does_not_say() -> None:
    pids = []
    crew = Crew(QueueRef("default", "plain"))
    for executor in ("inline", "process"):
        (found,) = await crew.run(await crew.add("where"), executor=executor)
        pids.append(result_of(found))

    assert pids[0] == os.getpid() != pids[1]
    with pytest.raises(OptionError, match="executor: found 'subprocess', wanted inline or process"):
        crew.worker(executor="subprocess")


def test_an_app_in_a_script_has_processes_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


async def test_a_script_that_starts_its_worker_unguarded_is_told_where(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    host = Host(Start("app", None, str(script), sys.path))

    with pytest.raises(ConfigError) as caught:
        await host.open()
    assert str(caught.value) == (
        "the app cannot be imported: it starts a worker when it is imported: "
        f"put what starts it under if __name__ == '__main__': ({script}, line 16)"
    )


SCRIPT = """
import asyncio
import os

from penstock import Penstock

app = Penstock("memory://")

@app.task(executor="process")
def where() -> int:
    return os.getppid()

async def main() -> None:
    async with app:
        handle = await where.enqueue()
        await app.worker(burst=True).run()
        print(await handle.result(60) != os.getpid())

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_an_app_inside_a_function_cannot_have_processes() -> None:
    with pytest.raises(ConfigError, match="make it at the top level of a module"):
        place_of(object())


def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    frames = Frames(10)

    assert list(frames.feed(b"\0\0\0\2{}\0\0\0\1")) == [b"{}"]
    assert frames.has_rest
    with pytest.raises(FrameError, match="of 11 bytes"):
        list(Frames(10).feed(b"\0\0\0\x0b"))


async def _all(crew: Crew) -> list[Any]:
    ids = {event.job for event in await crew.store.events.read_events(crew.queue) if event.job is not None}
    return [await crew.job(job) for job in ids]
