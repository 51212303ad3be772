"""How long a process has before it is asked, and before it is killed."""

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.stores.memory import MemoryStore
from penstock.tasks.registry import Registry
from penstock.worker.delivery import Lease, Stop
from penstock.worker.executors.stopping import StopDelays, stop
from penstock.worker.worker import Worker


@pytest.mark.parametrize(
    ("delays", "ends_at", "seen"),
    [
        (StopDelays(600, 600), "told", ["told"]),
        (StopDelays(0, 600), signal.SIGTERM, ["told", signal.SIGTERM]),
        (StopDelays(0, 0), signal.SIGKILL, ["told", signal.SIGTERM, signal.SIGKILL]),
    ],
)
async def test_each_step_waits_for_its_delay(delays: StopDelays, ends_at: object, seen: list[object]) -> None:
    """A step that would wait for ten minutes is never followed by the next one here."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    steps: list[object] = []

    def step(what: object) -> None:
        steps.append(what)
        if what == ends_at:
            asyncio.get_running_loop().call_soon(done.set_result, None)

    delivery: Any = SimpleNamespace(stop=Stop.CANCEL, lease=Lease(0.0))
    process: Any = SimpleNamespace(send_signal=step)
    async with asyncio.timeout(60):
        await stop(delivery, process, done, lambda: step("told"), delays)

    assert steps == seen


@pytest.mark.parametrize("option", ["term_after", "kill_after"])
def test_a_delay_that_cannot_be_is_named(option: str) -> None:
    with pytest.raises(OptionError, match=option):
        Worker(MemoryStore(), QueueRef("default", "q"), Registry(), **{option: -1.0})  # type: ignore[arg-type]
