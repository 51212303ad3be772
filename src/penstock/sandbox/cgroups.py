"""A cgroup for each confined process: limits for it and all that it starts in sum, and a certain end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.errors import ConfigError
from penstock.sandbox import paths

CONTROLLERS: Final = ("memory", "pids")
_NAME: Final = "penstock-"
_SWAP: Final = "memory.swap.max"
_MARKS: Final = ("user.delegate", "trusted.delegate")
"""By which systemd says that a cgroup is its service's own."""
_TRIED: Final = (sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()")
_SECONDS: Final = 10.0


class Group:
    """The cgroup of one confined process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._join_file = -1

    def make(self, limits: dict[str, str]) -> None:
        """Have it, with these limits, and its door open: who opened it counts, not who enters."""
        self._path.mkdir(exist_ok=True)
        for name, value in limits.items():
            # A kernel without swap has no limit on it.
            if name != _SWAP or (self._path / name).exists():
                (self._path / name).write_text(value)
        self._join_file = os.open(self._path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def enter(self, pid: int = 0) -> None:
        """Put a process into it, the caller unless told, and shut the door."""
        os.write(self._join_file, str(pid).encode())
        os.close(self._join_file)

    def kill(self) -> None:
        """Kill every process in the cgroup, however fast they fork."""
        with suppress(FileNotFoundError):
            (self._path / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Remove the cgroup once every process in it has ended."""
        with suppress(OSError):
            self._path.rmdir()


class Cgroup(msgspec.Struct, frozen=True):
    """A cgroup of version 2 in which this user may make others."""

    folder: str
    controllers: tuple[str, ...]
    """Those of CONTROLLERS that limit here."""

    def of(self, keeper: int) -> Group:
        """The cgroup of what this process keeps."""
        return Group(Path(self.folder, f"{_NAME}{keeper}"))

    def limits(self, memory: int | None, processes: int) -> dict[str, str]:
        """The cgroup files to write and their values, for the controllers that are available."""
        found = {}
        if memory is not None and "memory" in self.controllers:
            found = {"memory.max": str(memory), _SWAP: "0", "memory.oom.group": "1"}
        if "pids" in self.controllers:
            found["pids.max"] = str(processes)
        return found

    def tidy(self) -> None:
        """Remove cgroups that killed keepers left behind."""
        for each in Path(self.folder).glob(f"{_NAME}*"):
            if not Path("/proc", each.name.removeprefix(_NAME)).exists():
                Group(each).remove()


@cache
def find() -> Cgroup | str:
    """The cgroup in which this user may make others, or why there is none. Found by trying."""
    best: Cgroup | None = None
    failure = "no cgroup of version 2 is mounted"
    for folder in _folders():
        try:
            found = attempt(folder)
        except (OSError, subprocess.SubprocessError, ConfigError) as error:
            failure = f"{folder}: {error}"
            continue
        if best is None or len(found.controllers) > len(best.controllers):
            best = found
    return best or failure


def _folders() -> Iterator[Path]:
    """This process's own cgroup, and the one above: where processes are, no limits can be given to others."""
    with suppress(OSError):
        own = [each[3:] for each in Path("/proc/self/cgroup").read_text().splitlines() if each[:3] == "0::"]
        for line in Path("/proc/self/mountinfo").read_text().splitlines() if own else ():
            place, _, kind = line.partition(" - ")
            top, mounted = place.split()[3:5]
            if kind.startswith("cgroup2 ") and paths.is_below(own[0], [top]):
                here = Path(mounted, own[0][len(top) :].lstrip("/"))
                yield here
                if here != Path(mounted):
                    yield here.parent
                return


def attempt(folder: Path) -> Cgroup:
    """Make a cgroup there, put a process into it and kill that by it; OSError or ConfigError if it fails."""
    _require_ours(folder)
    offered = (folder / "cgroup.controllers").read_text().split()
    for name in CONTROLLERS:
        if name in offered:
            with suppress(OSError):
                # Refused where the folder itself has processes.
                (folder / "cgroup.subtree_control").write_text(f"+{name}")
    given = (folder / "cgroup.subtree_control").read_text().split()
    found = Cgroup(str(folder), tuple(name for name in CONTROLLERS if name in given))
    found.tidy()
    group = found.of(os.getpid())
    with subprocess.Popen(_TRIED, stdin=subprocess.PIPE) as process:  # noqa: S603 (our own interpreter)
        try:
            group.make(found.limits(memory=1 << 30, processes=8))
            group.enter(process.pid)
            group.kill()
            process.wait(_SECONDS)
        finally:
            process.kill()
            process.wait()
            group.remove()
    return found


def _require_ours(folder: Path) -> None:
    """Refuse a folder that was not delegated to root: root could write to any."""
    if not os.access(folder, os.W_OK):
        raise ConfigError("this user cannot write there")
    is_top = not (folder.parent / "cgroup.procs").exists()
    if os.geteuid() == 0 and not is_top and not any(_has_mark(folder, mark) for mark in _MARKS):
        raise ConfigError("it was not delegated to this service")


def _has_mark(folder: Path, mark: str) -> bool:
    try:
        return os.getxattr(folder, mark) == b"1"
    except OSError:
        return False
