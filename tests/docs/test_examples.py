"""The examples do what their page says."""

import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT
from tests.docs.running import run

EXAMPLES: Final = ROOT / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples to run in."""
    for each in EXAMPLES.glob("*.py"):
        shutil.copy(each, tmp_path)
    return tmp_path


def test_the_mail_app_ends_every_job_as_it_should(folder: Path) -> None:
    told = run([sys.executable, "mail.py"], folder, "mail.py")

    assert told.splitlines() == [
        "sent to ada@mail.example at attempt 1",
        "sent to bob@flaky.example at attempt 2",
        "dead (MAX_ATTEMPTS): ConnectionError: the server of eve@down.example hung up",
        "failed (FAILED): 'nowhere' is no address",
    ]


def test_the_album_is_published_with_every_photo_that_is_one(folder: Path) -> None:
    told = run([sys.executable, "album.py"], folder, "album.py")

    assert told.splitlines() == [
        "waiting: 5",
        "published '# Summer' with 3 photos",
        "# Summer",
        "hills-1-small.jpg",
        "hills-2-small.jpg",
        "sea-small.jpg",
        "completed: 4 failed: 1",
    ]


def test_the_producer_can_be_run_twice_and_a_worker_finds_its_jobs(folder: Path) -> None:
    produce = [sys.executable, "produce.py", "ada@mail.example", "nowhere"]
    first = run(produce, folder, "produce.py")
    worked = run(["penstock", "worker", "mail:app", "--burst"], folder, "worker")
    again = run(produce, folder, "produce.py")

    assert first.splitlines() == ["ada@mail.example enqueued", "nowhere enqueued"]
    assert worked == ""
    assert again.splitlines() == [
        "ada@mail.example is there already, completed",
        "nowhere is there already, failed",
    ]


def test_the_page_names_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text("utf-8")

    assert [each.name for each in EXAMPLES.glob("*.py") if f"({each.name})" not in page] == []
