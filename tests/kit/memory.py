"""Where files cost no disk: tests make thousands of stores, and would wait for it."""

import shutil
from pathlib import Path
from typing import Final

_PLACE: Final = Path("/dev/shm")
_ROOM: Final = 4 << 30


def in_memory() -> Path | None:
    """A folder to make folders in; None, for the usual one, where there is none with room enough."""
    try:
        return _PLACE if shutil.disk_usage(_PLACE).free > _ROOM else None
    except OSError:
        return None
