"""A handler that reads a file and writes to a folder, both of which someone replaces meanwhile."""

import os
from pathlib import Path
from typing import Final

from penstock import Penstock, Permissions

VARIABLE: Final = "PENSTOCK_TEST_FOLDER"
FOLDER: Final = Path(os.environ[VARIABLE])
app = Penstock("memory://")
_calls = 0


@app.queue("box", max_attempts=1).task(
    permissions=Permissions(read=[str(FOLDER / "settings")], write=[str(FOLDER / "out")])
)
def copy(name: str) -> list[str | int]:
    """What was read, and how many jobs this process has had."""
    global _calls
    _calls += 1
    text = (FOLDER / "settings").read_text()
    (FOLDER / "out" / name).write_text(text)
    return [text, _calls]
