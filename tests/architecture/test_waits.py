"""The check that keeps sleeps and short time bounds out of the tests finds both, and takes a reason."""

from pathlib import Path

import pytest

from tests.architecture.waits import findings

REFUSED = {
    "a sleep": "import time\ntime.sleep(0.1)\n",
    "a sleep in a coroutine": "import asyncio\nasync def test():\n    await asyncio.sleep(1)\n",
    "a sleep of a computed time": "def test(wait):\n    sleep(wait)\n",
    "a timeout": "async def test():\n    async with asyncio.timeout(5):\n        pass\n",
    "a timeout by name": "_SOON = 2.0\nasync def test():\n    await asyncio.wait_for(work(), _SOON)\n",
    "a named argument": "def test():\n    job.result(timeout=1)\n",
    "the end of a process": "def test():\n    process.wait(5)\n",
    "a measured time": "def test():\n    began = time.monotonic()\n    assert time.monotonic() - began < 1\n",
    "a measured time by name": (
        "def test():\n    took = time.perf_counter() - began\n    assert 0.1 <= took <= 0.5\n"
    ),
    "a reason of one word": "time.sleep(1)  # real time: sorry\n",
}
TAKEN = {
    "giving up the processor": "async def test():\n    await asyncio.sleep(0)\n",
    "a handler that does not end": "async def handler():\n    await asyncio.sleep(3600)\n",
    "a long timeout": "async def test():\n    async with asyncio.timeout(30):\n        pass\n",
    "a task's own timeout": "def test():\n    queue.task(timeout=0.1)\n",
    "a time that was at least so long": "def test():\n    assert time.monotonic() - began >= 0.5\n",
    "a reason at the end of the line": "time.sleep(1)  # real time: the kernel has no clock to turn\n",
    "a reason on the line above": "# real time: the kernel has no clock to turn\ntime.sleep(1)\n",
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_waiting_for_real_time_is_refused(source: str) -> None:
    """One finding, on its line."""
    assert len(findings(source, Path("test_it.py"))) == 1


@pytest.mark.parametrize("source", TAKEN.values(), ids=TAKEN)
def test_what_does_not_wait_or_says_why_is_taken(source: str) -> None:
    """No finding."""
    assert findings(source, Path("test_it.py")) == []
