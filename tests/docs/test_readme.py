"""The first example that people copy works as it stands."""

from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.docs.running import is_run, run_page


def test_the_readmes_example_runs_as_it_stands(tmp_path: Path) -> None:
    found = list(blocks(ROOT / "README.md"))
    told = run_page(found, tmp_path)

    assert sum(map(is_run, found)) >= 4
    assert (tmp_path / "jobs.db").is_file()
    assert "sent to ada@example.org" in told


def test_the_readme_names_the_two_commands_and_the_way_to_install() -> None:
    text = (ROOT / "README.md").read_text("utf-8")

    assert all(f"\n{command}" in text for command in ("make demo", "make test", "pip install ."))
