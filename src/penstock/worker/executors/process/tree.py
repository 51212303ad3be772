"""Whole trees of processes: who gets their orphans, and how none of them is left."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_IS_LINUX: Final = sys.platform == "linux"
SWEEP: Final = 2.0
"""Seconds after which a process that was killed and is still there is left to whoever finds it."""
MARK: Final = "PENSTOCK_TREE"
"""The variable by which a worker knows what its fork server left behind when that was killed."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, daemons included; on Linux."""
    if _IS_LINUX:
        _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Be killed when the parent ends, or now if it has; on Linux."""
    if _IS_LINUX:
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def has_children() -> bool:
    """True while this process has living children; those that ended are reaped."""
    with suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return True
    return False


def kill_strays(known: Container[int]) -> int:
    """Kill the children of this process that are not known, and theirs; how many would not go."""
    end = time.monotonic() + SWEEP
    while strays := [pid for pid in children() if pid not in known]:
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in strays:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > end:
            return len(strays)
        # What they started comes to this process as each of them is gone.
        time.sleep(0.001)
    return 0


def kill_group(pid: int) -> None:
    """Kill what stayed in a child's session, where its orphans come to nobody who knows them."""
    if not _IS_LINUX:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill every process that this user started with the mark in its environment."""
    wanted = f"{MARK}={mark}".encode()
    end = time.monotonic() + SWEEP
    while (found := list(_marked(wanted))) and time.monotonic() < end:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def threads() -> int:
    """How many threads this process has, those of C libraries included."""
    with suppress(OSError):
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    return 1


def children() -> list[int]:
    """The children of this process, those that ended and were not reaped included; on Linux."""
    if not _IS_LINUX:
        return []
    try:
        found = [(task / "children").read_text("ascii") for task in Path("/proc/self/task").iterdir()]
    except OSError:
        # A kernel without that file.
        return _by_parent()
    return [int(pid) for text in found for pid in text.split()]


def _by_parent() -> list[int]:
    own = os.getpid()
    found = []
    for pid in _pids():
        with suppress(OSError, IndexError, ValueError):
            # The name in brackets may hold anything; the parent is the second word after it.
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
            if int(stat.rpartition(")")[2].split()[1]) == own:
                found.append(pid)
    return found


def _marked(wanted: bytes) -> Iterator[int]:
    for pid in _pids():
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                yield pid


def _pids() -> list[int]:
    with suppress(OSError):
        return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return []


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
