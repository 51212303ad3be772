"""The examples do what their page says."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT
from tests.docs.running import run
from tests.kit.waiting import PATIENCE

EXAMPLES: Final = ROOT / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples to run in."""
    for each in EXAMPLES.glob("*.py"):
        shutil.copy(each, tmp_path)
    return tmp_path


def test_the_store_over_a_dict_passes_the_suite_for_its_parts(folder: Path) -> None:
    """Beside none of the project's own fixtures, as in a project of somebody else's."""
    suite = ROOT / "src" / "penstock" / "testing" / "conformance"
    told = run(
        [
            *(sys.executable, "-m", "pytest", "--pyargs", "penstock.testing.conformance", "-q", "-n", "0"),
            *("-c", "/dev/null", "--rootdir", str(folder), "--confcutdir", str(suite)),
            *("--penstock-store", "dict_store:DictStore", "--penstock-parts", "moves"),
        ],
        folder,
        "dict_store.py",
    )

    assert int(told.splitlines()[-1].split(" passed")[0]) > 150


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "--penstock-store: found nothing, wanted MODULE:FACTORY"),
        (["--penstock-parts", "moves,magic"], "--penstock-parts: found magic, wanted some of moves, "),
    ],
    ids=["no store", "no such part"],
)
def test_the_suite_says_what_it_wants_to_be_told(folder: Path, arguments: list[str], fault: str) -> None:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--pyargs", "penstock.testing.conformance.test_order", "-q"),
            *("-c", "/dev/null", "--rootdir", str(folder), "-n", "0", *arguments),
            *("--confcutdir", str(ROOT / "src" / "penstock" / "testing" / "conformance")),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert ended.returncode != 0
    assert fault in ended.stdout + ended.stderr


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
