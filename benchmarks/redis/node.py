"""BullMQ on Node, where there is Node: installed for the time of a run."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.beside.side import Side
from benchmarks.redis.sides import NODE

SCRIPT: Final = Path(__file__).parent / "peers" / "bullmq.mjs"
_INSTALL_SECONDS: Final = 120.0


@contextmanager
def installed() -> Iterator[tuple[Side | None, str]]:
    """The side and its versions; or None and why it is left out."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        yield None, "left out: Node is not installed"
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-node-") as name:
        folder = Path(name)
        try:
            said = _install(node, npm, folder)
        except (subprocess.SubprocessError, OSError) as error:
            yield None, f"left out: BullMQ could not be installed ({type(error).__name__})"
            return
        # Beside its packages, where Node looks for them.
        script = Path(shutil.copy(SCRIPT, folder))
        side = Side(
            NODE,
            folder,
            "",
            (node, str(script), "work"),
            "concurrency 100",
            40_000,
            40_000,
            "addBulk",
            "100 promises",
            script=script,
        )
        yield side, said


def _install(node: str, npm: str, folder: Path) -> str:
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "bullmq", "ioredis"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=_INSTALL_SECONDS)
    show = "console.log(require('./node_modules/bullmq/package.json').version, process.version)"
    asked = [node, "-e", show]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    bullmq, on = done.stdout.split()
    return f"BullMQ {bullmq}, Node {on.removeprefix('v')}"
