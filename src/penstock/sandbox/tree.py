"""Whole trees of processes: who gets their orphans, and how none of them is left."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.sandbox import linux

_IS_LINUX: Final = sys.platform == "linux"
SWEEP: Final = 2.0
"""Seconds after which a process that was killed and is still there is left to whoever finds it."""
MARK: Final = "PENSTOCK_TREE"
"""The variable by which a worker knows what its fork server left behind when that was killed."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, daemons included; on Linux."""
    if _IS_LINUX:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)


def adopts_orphans() -> bool:
    """True after `adopt_orphans`; a fork does not pass it on."""
    answer = ctypes.c_int()
    linux.prctl(linux.PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer))
    return bool(answer.value)


def die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent ends; ends it now if the parent has ended."""
    if _IS_LINUX:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
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


def children() -> list[int]:
    """The children of this process, those that ended and were not reaped included; on Linux.

    The list is whole as long as no other thread reaps.
    """
    if not _IS_LINUX:
        return []
    try:
        found = [(task / "children").read_text("ascii") for task in Path("/proc/self/task").iterdir()]
    except OSError:
        # This kernel does not have the file.
        own = os.getpid()
        return [pid for pid, parent in _parents().items() if parent == own]
    return [int(pid) for text in found for pid in text.split()]


def end_strays(known: Collection[int] = ()) -> int:
    """Kill the children of this process that are not known, and all below them; how many would not go.

    They are stopped first, until no new one is found: what is stopped cannot fork ahead of the killing.
    """
    end = time.monotonic() + SWEEP
    while strays := set(children()).difference(known):
        if time.monotonic() > end:
            return len(strays)
        stopped: set[int] = set()
        while (found := _tree(strays)).keys() - stopped and time.monotonic() < end:
            for pid in found.keys() - stopped:
                _send(pid, found[pid], signal.SIGSTOP)
            stopped |= found.keys()
        for pid, parent in found.items():
            _send(pid, parent, signal.SIGKILL)
        for pid in strays:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        # Their orphans become children of this process.
        time.sleep(0.001)
    return 0


def kill_group(pid: int) -> None:
    """Kill what is left in a child's session, for systems where this process does not adopt orphans."""
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


def _tree(roots: Iterable[int]) -> dict[int, int]:
    """The processes and all their descendants, each with its parent."""
    parents = _parents()
    below: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        below.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    ahead = [pid for pid in roots if pid in parents]
    while ahead:
        pid = ahead.pop()
        found[pid] = parents[pid]
        ahead += below.get(pid, ())
    return found


def _send(pid: int, parent: int, number: int) -> None:
    """Signal the process that has this parent; one that got its number in the meantime is spared."""
    with suppress(OSError, AttributeError):
        if parent == os.getpid():
            # The kernel does not use the pid again before this process reaps it.
            os.kill(pid, number)
            return
        held = os.pidfd_open(pid)
        try:
            if _parent(pid) == parent:
                signal.pidfd_send_signal(held, number)
        finally:
            os.close(held)


def _parents() -> dict[int, int]:
    found = {}
    for pid in _pids():
        with suppress(OSError):
            found[pid] = _parent(pid)
    return found


def _parent(pid: int) -> int:
    # The name in brackets may hold any text; the parent is the second field after it.
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def _marked(wanted: bytes) -> Iterator[int]:
    for pid in _pids():
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                yield pid


def _pids() -> list[int]:
    with suppress(OSError):
        return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return []
