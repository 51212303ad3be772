"""The first example that people copy works as it stands."""

from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import gettempdir

from tests.docs.pages import ROOT, blocks
from tests.docs.running import is_run, run_page


def test_the_readmes_example_runs_as_it_stands(tmp_path: Path) -> None:
    found = list(blocks(ROOT / "README.md"))
    # Its service has the port that it has for everybody.
    with (Path(gettempdir()) / "penstock-readme.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        told = run_page(found, tmp_path)

    assert sum(map(is_run, found)) >= 4
    assert (tmp_path / "jobs.db").is_file()
    assert "sent to ada@example.org" in told


def test_the_readme_names_the_two_commands_and_the_way_to_install() -> None:
    text = (ROOT / "README.md").read_text("utf-8")

    assert all(f"\n{command}" in text for command in ("make demo", "make test", "pip install ."))
