"""Tasks with permissions: confined in a process of their own, and otherwise like all others."""

import importlib
import re
import tempfile
from pathlib import Path

import msgspec
import pytest

from penstock import Penstock
from penstock.app.place import place_of
from penstock.core.errors import ConfigError, OptionError
from penstock.core.job import Job, QueueRef
from penstock.core.states import State
from penstock.sandbox.permissions import Permissions
from penstock.stores.memory import MemoryStore
from penstock.worker.executors.process.host import Host
from penstock.worker.worker import Worker
from tests.worker.executors import confined, impossible, unstartable
from tests.worker.executors.kit import BOX, Crew, result_of


@pytest.fixture
def box() -> Crew:
    """A queue whose tasks may do next to nothing."""
    return Crew(BOX, app=confined.app)


async def test_a_confined_handler_gets_its_job_and_not_the_machine(box: Crew) -> None:
    jobs = [await box.add("compute", number=7), await box.add("read", path=str(Path(__file__)))]
    jobs.append(await box.add("read", path="/etc/passwd"))
    good, own, bad = await box.run(*jobs)

    assert result_of(good) == 14
    assert good.progress == b'"begun"'
    assert "Tasks with permissions" in result_of(own)
    assert (bad.reason, "FileNotFoundError" in (bad.error or "")) == ("MAX_ATTEMPTS", True)


async def test_a_confined_process_is_used_again_unless_its_time_is_counted(box: Crew) -> None:
    jobs = [await box.add(name) for name in ("count", "count", "count_once", "count_once")]
    found = await box.run(*jobs, concurrency=1)

    assert [result_of(job) for job in found] == [1, 2, 1, 1]


async def test_a_confined_process_does_not_outlive_the_paths_that_it_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would go on with the file and the folder that were replaced."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "settings").write_text("old")
        (folder / "out").mkdir()
        (folder / "out").chmod(0o777)
        monkeypatch.setenv("PENSTOCK_TEST_FOLDER", name)
        crew = Crew(BOX, app=importlib.import_module("tests.worker.executors.replaced").app)
        async with crew.at_work(concurrency=1):

            async def copied(file: str) -> Job:
                return await crew.ended(await crew.add("copy", name=file))

            assert result_of(await copied("a")) == ["old", 1]
            assert result_of(await copied("b")) == ["old", 2]
            (folder / "new").write_text("new")
            (folder / "new").replace(folder / "settings")
            assert result_of(await copied("c")) == ["new", 1]
            (folder / "out").rename(folder / "out.old")
            (folder / "out").mkdir()
            (folder / "out").chmod(0o777)
            assert result_of(await copied("d")) == ["new", 1]
            assert [each.name for each in (folder / "out").iterdir()] == ["d"]
            (folder / "settings").unlink()
            assert f"{folder}/settings is gone" in ((await copied("e")).error or "")
            (folder / "settings").symlink_to("/etc/passwd")
            assert "settings leads elsewhere than when the worker started" in (
                (await copied("f")).error or ""
            )


async def test_a_confined_process_is_killed_with_all_it_started(box: Crew) -> None:
    jobs = [await box.add("crash"), await box.add("forks")]
    crashed, timed_out = await box.run(*jobs)

    assert (crashed.reason, "last words" in (crashed.error or "")) == ("KILLED: SIGSEGV", True)
    assert timed_out.reason == "TIMEOUT"
    assert confined.marked(confined.FORKED) == []


async def test_a_confined_handler_spawns_no_jobs_and_knows_no_address(box: Crew) -> None:
    jobs = [await box.add("spawns"), await box.add("address")]
    spawns, address = await box.run(*jobs)

    assert "a task with permissions spawns no jobs" in (spawns.error or "")
    assert result_of(address) is None


async def test_a_program_is_confined_before_it_starts(box: Crew) -> None:
    (found,) = await box.run(await box.add("cat"))

    assert (found.reason, "No such file" in (found.error or "")) == ("EXITED: 1", True)


async def test_a_permission_that_cannot_be_enforced_stops_the_worker_before_it_claims() -> None:
    store, queue = MemoryStore(), QueueRef("default", "impossible")
    crew = Crew(queue, store)
    job = await crew.enqueue("read", msgspec.json.encode({}))
    worker = Worker(store, queue, impossible.app.registry, host=Host(place_of(impossible.app)))

    with pytest.raises(ConfigError, match=r"task 'read': permissions.read: found '/nowhere/to/be/found'"):
        await worker.run()
    assert (await crew.job(job)).state is State.PENDING


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (unstartable.absent, "task 'resize': there is no program 'no-such-program' that can be started"),
        (
            unstartable.forbidden,
            "'show': its program 'cat' is not among its permissions: add run=['cat']",
        ),
    ],
)
async def test_a_program_that_cannot_start_stops_the_worker(app: Penstock, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        await Crew(BOX, app=app).burst()


def test_permissions_need_a_process() -> None:
    with pytest.raises(
        OptionError, match=r"permissions: .* an inline handler can do all that its worker can"
    ):
        confined.box.task(name="a", executor="inline", permissions=Permissions())(print)
    with pytest.raises(OptionError, match="permissions: found 'all', wanted Permissions"):
        confined.box.task(name="a", permissions="all")(print)  # type: ignore[call-overload]
