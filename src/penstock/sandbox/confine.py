"""What has to be done for some permissions, on this machine and by this user."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from penstock.core.errors import ConfigError, OptionError
from penstock.sandbox import available, landlock, paths
from penstock.sandbox.cgroups import Cgroup
from penstock.sandbox.landlock import Rule
from penstock.sandbox.permissions import Permissions
from penstock.sandbox.plan import Plan as Plan
from penstock.sandbox.root import Mount, Root
from penstock.sandbox.trial import attempt

Mode = Literal["strict", "best-effort"]

_OF_A_PROCESS: Final = re.compile(r"/proc/(self|thread-self|[0-9]+)(/|$)")
_ELF: Final = b"\x7fELF"
_INTERPRETER: Final = 3
"""The kind of program header that names the loader."""


def prepare(permissions: Permissions, mode: Mode = "strict") -> Plan:
    """What has to be done for these permissions here, tried out once.

    ConfigError when this kernel cannot enforce all of them; in mode `best-effort` the plan has the `gaps`.
    Call it in a process that has imported the app: its code, as it is found here, stays readable.
    """
    if mode not in ("strict", "best-effort"):
        raise OptionError("mode", mode, "strict or best-effort")
    if sys.platform != "linux":
        raise ConfigError(f"permissions are enforced by the Linux kernel, and this is {sys.platform}")
    gaps = available.gaps(permissions)
    if gaps and mode == "strict":
        raise ConfigError("these permissions cannot be enforced here: " + "; ".join(gaps))
    plan = _plan(permissions, tuple(gaps))
    failure = attempt(plan)
    if failure is not None:
        raise ConfigError(f"these permissions cannot be put to use here: {failure}")
    return plan


def _plan(permissions: Permissions, gaps: tuple[str, ...]) -> Plan:
    walk = paths.Walk()
    write = paths.covered(_real(walk, "write", permissions.write))
    reading = _real(walk, "read", permissions.read)
    own = [walk.real(each) for each in (*paths.interpreter(), *paths.app_code())]
    read = paths.covered([*reading, *(each for each in own if each)])
    run = [each for program in permissions.run for each in _program(walk, program)]
    for each in run:
        if paths.is_below(each, write):
            raise OptionError("permissions.run", each, "a program where the task cannot write")
    devices = [each for each in paths.DEVICES if Path(each).exists()]
    proc = [each for each in read if each.split("/")[1] == "proc"]
    mounts = {each: Mount(each) for each in paths.covered([*read, *run]) if each not in proc}
    mounts |= {each: Mount(each, is_writable=True) for each in write}
    mounts |= {each: Mount(each, is_device=True) for each in devices}
    rules = [Rule(each, landlock.READ) for each in read]
    rules += [Rule(each, landlock.WRITE) for each in write]
    rules += [Rule(each, landlock.EXECUTE | landlock.READ_FILE) for each in run]
    rules += [Rule(each, landlock.READ_FILE | landlock.WRITE_FILE) for each in devices]
    has_namespaces = available.namespaces_fail() is None
    if has_namespaces or "/" in (*permissions.read, *permissions.write):
        # A root of its own holds only what the process may see.
        rules.append(Rule("/", landlock.READ_DIR))
    return Plan(
        permissions=permissions,
        identity=available.identity(),
        root=Root(
            tuple(mounts[each] for each in sorted(mounts, key=lambda each: each.split("/"))),
            tuple(walk.links.items()),
            bool(proc),
        ),
        rules=tuple(rules),
        has_namespaces=has_namespaces,
        has_filter=available.has_filter(),
        landlock=available.landlock_version(),
        folder=str(Path.cwd()),
        cgroup=_cgroup(has_namespaces),
        gaps=gaps,
    )


def _cgroup(has_namespaces: bool) -> Cgroup | None:
    """A cgroup where it adds a limit: entering one is slow, and namespaces end all processes as surely."""
    found = available.cgroup()
    return found if found and (found.controllers or not has_namespaces) else None


def _real(walk: paths.Walk, field: str, given: Sequence[str]) -> list[str]:
    """The resolved paths. The root stands for everything in it that the user may open."""
    found: list[str] = []
    for path in given:
        if _OF_A_PROCESS.match(path):
            raise OptionError(f"permissions.{field}", path, "/proc, or what is there of no process")
        real = walk.real(path)
        if real is None:
            raise OptionError(f"permissions.{field}", path, "a path that exists and can be followed")
        found += filter(_is_open, map(str, Path("/").iterdir())) if real == "/" else [real]
    return [each for each in map(walk.real, found) if each]


def _is_open(path: str) -> bool:
    if not Path(path).exists():
        return False
    who, seen = available.identity(), Path(path).stat()
    shift = 6 if seen.st_uid == who.uid else 3 if seen.st_gid == who.gid else 0
    return seen.st_mode >> shift & 0o5 == 0o5


def _program(walk: paths.Walk, program: str) -> list[str]:
    """The program's file, and that of its loader."""
    found = shutil.which(program)
    real = walk.real(str(Path(found).absolute())) if found else None
    if real is None:
        raise OptionError("permissions.run", program, "a program that is there and can be started")
    with Path(real).open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith(b"#!"):
        interpreter = os.fsdecode(head[2:].split(b"\n")[0].split()[0])
        raise OptionError(
            "permissions.run", program, f"a program: this is a script, name {interpreter} instead"
        )
    loader = _loader(head)
    real_loader = walk.real(loader) if loader else None
    return [real, real_loader] if real_loader else [real]


def _loader(head: bytes) -> str | None:
    """What the header of an ELF file names as its loader; None for a static program."""
    if not head.startswith(_ELF) or head[4] != 2:
        return None
    offset, size = int.from_bytes(head[32:40], "little"), int.from_bytes(head[54:56], "little")
    count = int.from_bytes(head[56:58], "little")
    for each in range(count):
        entry = head[offset + each * size :][:size]
        if int.from_bytes(entry[:4], "little") == _INTERPRETER:
            start, length = int.from_bytes(entry[8:16], "little"), int.from_bytes(entry[32:40], "little")
            return os.fsdecode(head[start : start + length].rstrip(b"\0"))
    return None
