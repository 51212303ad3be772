"""The variables a confined process sees, and those that it must not find in its memory either."""

import ctypes
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

ALWAYS: Final = ("LANG", "LANGUAGE", "PATH", "TZ")
_HEADER: Final = bytes.__basicsize__ - 1
"""Where the text of a bytes object begins."""
_SPANS: Final = ((45, 46), (47, 48))
"""Where /proc/self/stat says that the arguments and the variables begin and end, after the name."""


def clear(names: Collection[str]) -> None:
    """Forget all variables but these, those of ALWAYS and the locale; wipe what the process was started with.

    What the app itself holds is its own and stays as it is: a parent should not have read secrets before it
    forks.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in names or name in ALWAYS or name.startswith("LC_")
    }
    values = list(os.environb.values())
    # Set anew, so that none of them stays in the memory that is wiped.
    os.environ.clear()
    os.environ.update(kept)
    (alone,) = _holders([os.urandom(8)])
    for value, holders in zip(values, _holders(values), strict=True):
        # Only strings without another reference: freed now, they would leave their text in memory.
        if holders == alone and len(value) > 1:
            ctypes.memset(id(value) + _HEADER, 0, len(value))
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    for start, end in ((int(fields[first]), int(fields[last])) for first, last in _SPANS):
        if 0 < start < end:
            ctypes.memset(start, 0, end - start)


def _holders(values: list[bytes]) -> list[int]:
    """The reference count of each string, taken in the same way so that the counts can be compared."""
    return [sys.getrefcount(each) for each in values]
