"""Registry entries of other versions: shown as far as they are understood, and no harm to the others."""

import msgspec
import pytest

from penstock.stores.memory import MemoryStore
from penstock.stores.values import WorkerEntry, WorkerState
from penstock.stores.worker_entries import KIND
from penstock.worker.registration import Registration

ADA = WorkerEntry("ada", "host", 7, "0.1", {"mail": 10}, ("send",))
NEWER = {
    "v": 9,
    "lease_ms": 60_000,
    "worker": {
        "name": "newer",
        "host": "there",
        "pid": "4711@pod",
        "version": "9.0",
        "queues": {"mail": 3},
        "tasks": {"send": {"since": 3}},
        "state": "hibernating",
        "moods": ["good"],
        "memory": 5,
    },
}


async def _stored(store: MemoryStore, name: str, body: object) -> None:
    await store.key_value.put_entry("default", KIND, name, msgspec.json.encode(body))


async def test_an_entry_of_a_newer_version_is_shown_as_far_as_it_is_understood() -> None:
    store = MemoryStore()
    await _stored(store, "0", NEWER | {"until": await store.clock.now() + 50_000})
    await store.workers.register_worker("default", ADA, 30_000)
    ada, newer = await store.workers.list_workers("default")

    assert ada.name == "ada"
    assert (newer.name, newer.host, newer.version, newer.queues) == ("newer", "there", "9.0", {"mail": 3})
    assert (newer.pid, newer.tasks, newer.state, newer.memory) == (0, (), None, 5)


async def test_an_entry_of_the_version_before_is_shown() -> None:
    store = MemoryStore()
    old = msgspec.json.decode(msgspec.json.encode(ADA))
    body = {"worker": old, "until": await store.clock.now() + 20_000, "lease_ms": 30_000}
    await _stored(store, "0", body)
    (found,) = await store.workers.list_workers("default")

    assert msgspec.structs.replace(found, renewed_at=0) == ADA
    assert (found.state, found.started_at, found.jobs) == (None, None, ())


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"worker": {"name": "a\nb"}, "until": 2**60, "lease_ms": 1},
        {"worker": {}, "until": 2**60, "lease_ms": 1},
        {"worker": [], "until": "later"},
    ],
)
async def test_an_entry_that_cannot_be_read_hides_no_other(body: object) -> None:
    store = MemoryStore()
    await _stored(store, "0", body)
    await store.workers.register_worker("default", ADA, 30_000)

    assert [each.name for each in await store.workers.list_workers("default")] == ["ada"]


async def test_a_newer_entry_tells_which_tasks_are_known() -> None:
    """What it tells in a form that is not understood, it does not tell."""
    store = MemoryStore()
    worker = NEWER["worker"] | {"tasks": ["send"]}  # type: ignore[operator]
    await _stored(store, "0", NEWER | {"worker": worker, "until": await store.clock.now() + 50_000})
    registration = Registration(store, "default", "me", {"mail": 1}, ["else"])

    assert await registration.knows("mail", "send")
    assert not await registration.knows("mail", "other")


def test_states_have_the_words_of_the_registry() -> None:
    assert [str(state) for state in WorkerState] == ["idle", "busy", "shutting_down"]
