"""How much a confined process may use."""

import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.sandbox.permissions import Permissions

DESCRIPTORS: Final = 1024
FEWEST_DESCRIPTORS: Final = 64
_MEMORY_PER_DESCRIPTOR: Final = 1 << 20
_SIGNALS: Final = 256
"""Queued signals and timers of all processes of the user, beyond which this one gets no more."""
_NONE: Final = ("RLIMIT_CORE", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_MEMLOCK")


def memory() -> tuple[int, int]:
    """Bytes that this process has mapped, and those of them that are resident."""
    mapped, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(mapped) * resource.getpagesize(), int(resident) * resource.getpagesize()


def tasks_of(uid: int) -> int:
    """Processes and threads that the kernel counts for a user."""
    count = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += int((entry / "stat").read_bytes().rpartition(b")")[2].split()[17])
    return count


def descriptors(memory: int | None) -> int:
    """The limit on open descriptors: lower with little `memory`, which leaves out buffers of sockets."""
    if memory is None:
        return DESCRIPTORS
    return min(DESCRIPTORS, max(FEWEST_DESCRIPTORS, memory // _MEMORY_PER_DESCRIPTOR))


def limit(permissions: Permissions, *, mapped: int, tasks: int) -> None:
    """Bound this process and its children; `mapped` and `tasks` are there already and do not count."""
    bounds = {
        "RLIMIT_NOFILE": descriptors(permissions.memory),
        "RLIMIT_NPROC": tasks + permissions.processes,
        "RLIMIT_SIGPENDING": _SIGNALS,
    }
    bounds |= dict.fromkeys(_NONE, 0)
    if permissions.memory is not None:
        bounds["RLIMIT_AS"] = mapped + permissions.memory
    if permissions.file_size is not None:
        bounds["RLIMIT_FSIZE"] = permissions.file_size
    for name, most in bounds.items():
        _lower(getattr(resource, name, None), most)
    if permissions.cpu_seconds is not None:
        # SIGXCPU at the limit can be caught, SIGKILL a second later cannot.
        _lower(resource.RLIMIT_CPU, permissions.cpu_seconds, 1)


def _lower(kind: int | None, most: int, grace: int = 0) -> None:
    if kind is None:
        return
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
        grace = min(grace, hard - most)
    resource.setrlimit(kind, (most, most + grace))
