"""Handlers in processes, and programs, on every store."""

from pathlib import Path

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.protocol import Store
from tests.worker.executors.kit import Crew, appears, result_of


async def test_processes_return_die_and_are_cancelled(store: Store, queue: QueueRef, tmp_path: Path) -> None:
    crew = Crew(queue, store)
    good, dead = await crew.add("add", a=1, b=2), await crew.add("die", how="segfault")
    program = await crew.add("echo", value="text")
    cancelled = await crew.add("waits", path=str(tmp_path / "begun"))
    async with crew.at_work(lease=1.5):
        await appears(tmp_path / "begun")
        await crew.store.moves.cancel(queue, [cancelled])
        ended = [await crew.ended(job) for job in (good, dead, program, cancelled)]

    assert result_of(ended[0]) == 3
    assert (ended[1].state, ended[1].reason) == (State.DEAD, "KILLED: SIGSEGV")
    assert "last words" in (ended[1].error or "")
    assert result_of(ended[2])[0] == "text"
    assert (ended[3].state, ended[3].reason) == (State.CANCELLED, "CANCELLED")
