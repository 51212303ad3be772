"""The battery as an app: each technique is a job, confined by the permissions of its task."""

import os
from typing import Final, get_args

import msgspec

from penstock import Penstock
from penstock.core.job import Job
from penstock.core.states import State
from tests.sandbox.scene import TECHNIQUES, Given, Scene
from tests.sandbox.stage import WORKED, permissions

VARIABLE: Final = "PENSTOCK_TEST_SCENE"
"""Where the scene is described, for this module is imported by a fork server as well."""

scene: Final = msgspec.json.decode(os.environ[VARIABLE], type=Scene)
app = Penstock("memory://")
queue = app.queue("battery", max_attempts=1, timeout=20)


def attempt(name: str) -> None:
    """It has worked when it returns."""
    TECHNIQUES[name].call(scene)


for given in get_args(Given):
    queue.task(name=given, permissions=permissions(given, scene))(attempt)


async def play() -> dict[str, str]:
    """What came of every technique: what it raised, or how its process ended."""
    async with app:
        handles = {name: await app.task_named(each.given).enqueue(name) for name, each in TECHNIQUES.items()}
        await app.worker(burst=True, concurrency=2).run()
        found = {name: await handle.info() for name, handle in handles.items()}
    return {name: _outcome(info) for name, info in found.items()}


def _outcome(info: Job) -> str:
    if info.state is State.COMPLETED:
        return WORKED
    said = info.error if info.reason == "MAX_ATTEMPTS" else info.reason
    return (said or "").partition("\n")[0]
