"""Running a page: its files are written, its scripts and commands are run, its outputs are compared.

The word after the language says what a block is for: `python jobs.py` and `toml penstock.toml` are files,
`python run` and `sh run` are run in the folder of the files, and `text output` is what the run before it
printed, where … stands for anything.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT, Block
from tests.kit.curl import path_with_curl
from tests.kit.waiting import SLOWNESS

SECONDS: Final = 300 * SLOWNESS
_SPARK: Final = ROOT / "tests" / "spark"
"""Where the settings are that make Spark quick with little data, and what its workers load beforehand."""


def is_run(block: Block) -> bool:
    """True for a block that does something when its page is run."""
    return " " in block.info


def run_page(blocks: Iterable[Block], folder: Path) -> str:
    """Everything that the page's runs printed."""
    told: list[str] = []
    for block in blocks:
        _, _, what = block.info.partition(" ")
        if what == "run":
            told.append(_run(block, folder))
        elif what == "output":
            check_output(block, told[-1])
        elif what:
            assert re.fullmatch(r"[\w./-]+\.\w+", what), (
                f"{block}: {what!r} is neither run, output nor a file"
            )
            place = folder / what
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.code, "utf-8")
    return "\n".join(told)


def check_output(block: Block, told: str) -> None:
    """The block's lines stand in the output, one after the other."""
    rest = told
    for line in filter(None, map(str.strip, block.code.splitlines())):
        pattern = r"\s+".join(".*?".join(map(re.escape, word.split("…"))) for word in line.split())
        found = re.search(pattern, rest)
        assert found is not None, f"{block}: {line!r} is not in:\n{rest}"
        rest = rest[found.end() :]


def _run(block: Block, folder: Path) -> str:
    command = (
        [sys.executable, "-c", block.code] if block.language == "python" else ["bash", "-ec", block.code]
    )
    return run(command, folder, f"{block}")


def run(command: list[str], folder: Path, name: str) -> str:
    """What a command printed; AssertionError when it failed."""
    bin_folder = str(Path(sys.executable).parent)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    environment = kept | {
        "PATH": f"{bin_folder}{os.pathsep}{path_with_curl(folder)}",
        "PYTHONPATH": f"{_SPARK / 'preloaded'}{os.pathsep}{ROOT / 'src'}",
        "SPARK_CONF_DIR": str(_SPARK / "conf"),
        "COLUMNS": "200",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
