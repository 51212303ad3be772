"""Files that Penstock makes can be read by their owner alone; files that were there keep their mode."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.job import NewJob, QueueRef
from penstock.spark.lake.folder import folder_at
from penstock.spark.sink.folders import refuse_unusable
from penstock.stores.sqlite import SqliteStore
from penstock.stores.sqlite.outbox import SqliteOutbox

QUEUE = QueueRef("default", "mail")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The mask that hides nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def use(path: Path) -> dict[str, int]:
    """The modes of the files while the store is in use."""
    store = SqliteStore(path)
    await store.open()
    await store.moves.enqueue(QUEUE, [NewJob(id="a", nonce="a", task="send", payload=b"{}")])
    found = {each.name: mode(each) for each in path.parent.iterdir() if not each.is_symlink()}
    await store.close()
    return found


async def test_a_new_file_and_those_beside_it_are_the_owners_alone(tmp_path: Path) -> None:
    found = await use(tmp_path / "jobs.db")

    assert found == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}
    assert await use(tmp_path / "jobs.db") == found


async def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await use(path)
    path.chmod(0o640)

    assert await use(path) == {"jobs.db": 0o640, "jobs.db-wal": 0o640, "jobs.db-shm": 0o640}


async def test_a_file_behind_a_link_is_made_for_the_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "data" / "real.db")

    await use(tmp_path / "jobs.db")

    assert mode(tmp_path / "data" / "real.db") == 0o600


async def test_an_outbox_that_is_made_is_the_owners_alone(tmp_path: Path) -> None:
    await SqliteOutbox(str(tmp_path / "shop.db")).open()

    assert mode(tmp_path / "shop.db") == 0o600


def test_folders_of_tables_and_quarantines_are_the_owners_alone(tmp_path: Path) -> None:
    folder_at(str(tmp_path / "tables")).write("one/manifest", b"{}")
    refuse_unusable("quarantine", str(tmp_path / "bad" / "rows"))

    assert mode(tmp_path / "tables") == mode(tmp_path / "tables" / "one") == 0o700
    assert mode(tmp_path / "tables" / "one" / "manifest") == 0o600
    assert mode(tmp_path / "bad") == mode(tmp_path / "bad" / "rows") == 0o700
