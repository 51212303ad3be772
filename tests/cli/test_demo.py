"""The demo proves that nothing was lost, and notices when something is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.demo.job_plan import plan
from tests.cli.conftest import Shell
from tests.kit.waiting import PATIENCE


def test_a_killed_worker_loses_no_job(shell: Shell) -> None:
    document = shell.json("demo", "--jobs", "300", "--workers", "2", "--seed", "7")

    ended = document["completed"] + document["failed"] + document["dead"]
    assert document["enqueued"] == ended == 300
    assert document["orphaned"] >= 1
    assert document["recovered"] >= document["orphaned"]
    assert (document["lost"], document["breaches"], document["proven"]) == (0, [], True)


def test_a_job_dropped_behind_the_stores_back_is_noticed(shell: Shell) -> None:
    assert shell("demo", "--jobs", "300", "--workers", "2", "--inject-loss", "--dir", "kept") == 1

    assert "deleted job" in shell.out
    assert "broken promise: not-in-store" in shell.out
    assert "NOT proven: 300 enqueued" in shell.out
    assert "lost 1" in shell.out
    (directory,) = Path("kept").iterdir()
    lines = (directory / "produced.jsonl").read_text().splitlines()
    assert len({json.loads(line)[0] for line in lines}) == 300


def test_a_seed_gives_the_same_jobs() -> None:
    assert list(plan(50, 3)) == list(plan(50, 3)) != list(plan(50, 4))


@pytest.mark.parametrize("option", ["--jobs", "--workers"])
def test_there_is_at_least_one_of_each(shell: Shell, option: str) -> None:
    assert shell("demo", option, "0") == 2
    assert f"{option}: found '0', wanted a whole number from 1" in shell.err


def test_a_directory_that_cannot_be_made_is_one_line(shell: Shell) -> None:
    Path("file").write_text("")

    assert shell("demo", "--dir", "file/below") == 2
    assert shell.err.startswith("penstock: error: --dir: file/below: Not a directory")


def test_a_demo_that_is_told_to_stop_leaves_nothing_behind(shell: Shell) -> None:
    command = [sys.executable, "-m", "penstock.cli", "demo"]
    where = os.environ | {"TMPDIR": str(shell.directory)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=where) as process:
        assert process.stdout is not None
        while b"worker processes started" not in process.stdout.readline():
            assert process.poll() is None
        assert list(shell.directory.glob("penstock-demo-*"))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, err) == (143, b"")
    assert not list(shell.directory.glob("penstock-demo-*"))
