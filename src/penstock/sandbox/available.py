"""What this kernel lets this user enforce, and why not what it does not."""

import os
import sys
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from penstock.sandbox import bpf, cgroups, landlock
from penstock.sandbox.cgroups import Cgroup
from penstock.sandbox.linux import MACHINE
from penstock.sandbox.namespaces import Identity
from penstock.sandbox.permissions import Permissions
from penstock.sandbox.trial import attempt

NOBODY: Final = 65534
_CAPABILITIES: Final = {"CAP_SETGID": 6, "CAP_SETUID": 7}
"""What it takes to become another user."""


class Means(msgspec.Struct, frozen=True):
    """A means of enforcement: is it there, what was seen, and what it is for."""

    name: str
    is_there: bool
    seen: str
    use: str


def identity() -> Identity:
    """Who confined processes are: the caller, but not root, unless root cannot become anyone else."""
    is_another = os.geteuid() == 0 and stays_root() is None
    return Identity(NOBODY, NOBODY) if is_another else Identity(os.geteuid(), os.getegid())


def stays_root() -> str | None:
    """Why a worker that runs as root cannot become nobody; None when it can, or is not root."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return None
    status = Path("/proc/self/status").read_text()
    held = int(next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1], 16)
    if missing := [name for name, number in _CAPABILITIES.items() if not held >> number & 1]:
        return f"root without {' and '.join(missing)} cannot become nobody"
    if not all(_is_mapped(Path(f"/proc/self/{kind}_map")) for kind in ("uid", "gid")):
        return f"there is no user {NOBODY} in this user namespace"
    groups = Path("/proc/self/setgroups")
    if groups.exists() and groups.read_text().strip() == "deny":
        return "groups cannot be given up in this user namespace"
    return None


def _is_mapped(path: Path) -> bool:
    ranges = [[int(each) for each in line.split()] for line in path.read_text().splitlines()]
    return any(first <= NOBODY < first + length for first, _, length in ranges)


def has_filter() -> bool:
    """Can system calls be filtered?"""
    return sys.platform == "linux" and bpf.is_known() and bpf.is_supported()


def landlock_version() -> int:
    """The version of Landlock; 0 for none."""
    return landlock.version() if sys.platform == "linux" and bpf.is_known() else 0


@cache
def namespaces_fail() -> str | None:
    """Why a process cannot have namespaces of its own; None when it can. Found out by trying."""
    if sys.platform != "linux" or not bpf.is_known():
        return f"not on {sys.platform}"
    return attempt(None)


def cgroup() -> Cgroup | None:
    """Where confined processes get cgroups of their own; None where they cannot."""
    found = cgroups.find()
    return found if isinstance(found, Cgroup) else None


def means() -> list[Means]:
    """Each means that permissions rest on, for people to read."""
    version = landlock_version()
    failure = namespaces_fail()
    who = identity()
    groups = cgroups.find()
    return [
        Means("system", sys.platform == "linux", f"{sys.platform} on {MACHINE}", "permissions need Linux"),
        Means(
            "seccomp",
            has_filter(),
            "system calls are filtered" if has_filter() else "no filter for this machine",
            "network, programs, other processes' memory",
        ),
        Means(
            "landlock",
            version >= landlock.OLDEST,
            f"version {version}" if version else "not in this kernel, or not switched on",
            "files, TCP; since version 6 signals and abstract sockets",
        ),
        Means(
            "namespaces",
            failure is None,
            failure or "user, mount, pid, network, ipc, uts, cgroup",
            "a root, pids and a network of its own",
        ),
        Means(
            "cgroup",
            isinstance(groups, Cgroup),
            groups if isinstance(groups, str) else f"{groups.folder} with {_controllers(groups)}",
            "a surer end; memory and processes in sum where it has these controllers. Not needed",
        ),
        Means(
            "user",
            stays_root() is None,
            stays_root() or f"uid {who.uid}" + (" instead of root" if who.uid != os.geteuid() else ""),
            "files",
        ),
    ]


def _controllers(found: Cgroup) -> str:
    return " and ".join(found.controllers) or "no controllers"


def gaps(permissions: Permissions) -> list[str]:
    """What could not be enforced here of these permissions, each with its reason and a way out."""
    found = []
    version, failure = landlock_version(), namespaces_fail()
    if (stays := stays_root()) is not None:
        found.append(f"user: {stays}; give it what is missing, or run the worker as an ordinary user")
    if not has_filter():
        found.append(
            "system calls: the kernel has no seccomp filter for this machine; use Linux on x86_64 or aarch64"
        )
    if failure is not None and version < landlock.OLDEST:
        found.append(
            f"files: Landlock is at version {version} and namespaces cannot be used ({failure}); "
            f"use Linux 6.2 or newer, or let this user have namespaces"
        )
    if permissions.run and not version:
        found.append("run: without Landlock whatever can be read can be started; use Linux 5.13 or newer")
    return found
