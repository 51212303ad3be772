"""A process that forks: the child has neither the thread nor the connections of its parent."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import ConfigError, Penstock
from penstock.stores.memory import MemoryStore

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


class Server(MemoryStore):
    """A store elsewhere: each process has a connection of its own."""

    def clone(self) -> "Server":
        return Server()


def in_child(work: Callable[[], object]) -> str:
    """What the work gives in a child that is ended after ten seconds: its answer, or its error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        try:
            said = str(work())
        except BaseException as error:  # noqa: BLE001 (all of it is for the parent to see)
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child hung"
    return said


def enqueue(app: Penstock) -> str:
    with app.blocking as queue:
        return f"enqueued in {queue.enqueue(app.by_name('add'), a=1).queue}"


def make(store: MemoryStore) -> Penstock:
    app = Penstock(store=store)
    app.queue("default")
    return app


def test_a_child_opens_the_blocking_face_again_while_it_is_open_in_the_parent() -> None:
    app = make(Server())
    with app.blocking as queue:
        assert in_child(lambda: enqueue(app)) == "enqueued in default"
        assert queue.enqueue(app.by_name("add"), a=2).created


def test_a_queue_of_the_parent_is_an_error_in_the_child() -> None:
    app = make(Server())
    with app.blocking as queue:
        said = in_child(lambda: queue.enqueue(app.by_name("add"), a=1))

    assert said.startswith("ConfigError: app.blocking was opened before a fork")


def test_a_child_leaves_the_block_of_its_parent_and_can_open_another() -> None:
    app = make(Server())

    def leave() -> str:
        app.blocking.__exit__(None, None, None)
        return enqueue(app)

    with app.blocking:
        assert in_child(leave) == "enqueued in default"


def test_a_lock_that_another_thread_held_is_free_in_the_child() -> None:
    app = make(Server())
    with app.blocking, app.blocking._lock:
        assert in_child(lambda: enqueue(app)) == "enqueued in default"


async def test_a_child_opens_an_app_that_is_open_in_the_event_loop_of_its_parent() -> None:
    app = make(Server())

    async def reopen() -> str:
        async with app:
            return (await app.by_name("add").enqueue(a=1)).queue

    async with app:
        assert in_child(lambda: asyncio.new_event_loop().run_until_complete(reopen())) == "default"
        assert app.is_open


def test_a_file_that_the_parent_has_open_is_refused_in_the_child(tmp_path: Path) -> None:
    """SQLite would take the parent's locks for the child's: jobs would be lost when the parent closes."""
    app = Penstock(f"sqlite:///{tmp_path}/jobs.db")
    app.queue("default")
    with app.blocking:
        assert "ConfigError: the app was open before a fork" in in_child(lambda: enqueue(app))

    assert in_child(lambda: enqueue(app)) == "enqueued in default"


def test_an_app_whose_event_loop_died_can_be_opened_again(tmp_path: Path) -> None:
    for app in (make(Server()), make(MemoryStore()), Penstock(f"sqlite:///{tmp_path}/jobs.db")):
        app.queue("default")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(app.__aenter__())
        loop.close()

        async def use(app: Penstock = app) -> bool:
            async with app:
                return (await app.by_name("add").enqueue(a=1)).created

        assert asyncio.run(use())
        assert not app.is_open


def test_an_app_is_not_opened_in_two_living_event_loops() -> None:
    app = make(MemoryStore())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(app.__aenter__())

    with pytest.raises(ConfigError, match="another event loop"):
        asyncio.run(app.__aenter__())
    loop.run_until_complete(app.__aexit__(None, None, None))
    loop.close()
