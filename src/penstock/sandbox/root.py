"""A root of its own for a confined process: only what it may see, read-only where it may not write."""

import ctypes
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.errors import ConfigError
from penstock.sandbox import linux
from penstock.sandbox.linux import AT_FDCWD, syscall

_CLONE: Final = 1
_CLOEXEC: Final = os.O_CLOEXEC
_RECURSIVE: Final = 0x8000
_EMPTY_PATH: Final = 0x1000
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_FROM_EMPTY: Final = 0x4
_SET_STRING, _CREATE = 1, 6
_PLACES: Final = ("/usr", "/tmp", "/mnt")  # noqa: S108 (covered by the new root, for as long as it is built)


class Mount(msgspec.Struct, frozen=True):
    """A path of the host that the confined process sees under the same name."""

    path: str
    is_writable: bool = False
    is_device: bool = False

    @property
    def flags(self) -> int:
        """The mount's flags: what it forbids."""
        if self.is_device:
            return _NOSUID | _NOEXEC | _RDONLY
        return _NOSUID | _NODEV | (_NOEXEC if self.is_writable else _RDONLY)


class Root(msgspec.Struct, frozen=True):
    """The paths that the process will see. Call `collect` with the caller's rights, then `build` inside."""

    mounts: tuple[Mount, ...]
    """Each after those above it."""
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links, with what they say."""
    has_proc: bool = False

    def collect(self) -> list[int]:
        """Open every path, each as a descriptor."""
        linux.mount(None, b"/", None, linux.MS_REC | linux.MS_PRIVATE, None)
        sources = []
        for mount in self.mounts:
            try:
                path = linux.hold(mount.path)
                source = syscall("open_tree", path, b"", _CLONE | _CLOEXEC | _RECURSIVE | _EMPTY_PATH)
            except OSError as error:
                raise ConfigError(f"{mount.path}: {error}") from error
            os.close(path)
            _restrict(source, mount.flags)
            sources.append(source)
        return sources

    def build(self, sources: list[int]) -> None:
        """Mount the paths under a new root and leave the old root for good."""
        root = _tmpfs()
        place = next(each for each in _PLACES if Path(each).is_dir())
        syscall("move_mount", root, b"", AT_FDCWD, place.encode(), _FROM_EMPTY)
        os.fchdir(root)
        for link, target in self.links:
            _make_link(link, target)
        for mount, source in zip(self.mounts, sources, strict=True):
            target = mount.path.lstrip("/")
            _make_place(target, source)
            syscall("move_mount", source, b"", AT_FDCWD, os.fsencode(target), _FROM_EMPTY)
            os.close(source)
        if self.has_proc:
            Path("proc").mkdir(exist_ok=True)
            linux.mount(b"proc", b"proc", b"proc", _RDONLY | _NOSUID | _NODEV | _NOEXEC, None)
        syscall("pivot_root", b".", b".")
        linux.umount(b".", linux.MNT_DETACH)
        os.chdir("/")
        _restrict(root, _RDONLY | _NOSUID | _NODEV | _NOEXEC, only_this=True)
        os.close(root)


def _tmpfs() -> int:
    context = syscall("fsopen", b"tmpfs", 1)
    for key, value in ((b"mode", b"0755"), (b"size", b"1m"), (b"nr_inodes", b"16k")):
        syscall("fsconfig", context, _SET_STRING, key, value, 0)
    syscall("fsconfig", context, _CREATE, None, None, 0)
    root = syscall("fsmount", context, 1, _NOSUID | _NODEV)
    os.close(context)
    return root


def _restrict(mount: int, flags: int, *, only_this: bool = False) -> None:
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    how = _EMPTY_PATH | (0 if only_this else _RECURSIVE)
    syscall("mount_setattr", mount, b"", how, ctypes.byref(attributes), ctypes.sizeof(attributes))


def _make_link(link: str, target: str) -> None:
    path = Path(link.lstrip("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(target)


def _make_place(target: str, source: int) -> None:
    """A folder or an empty file to mount on, unless there is one."""
    path = Path(target)
    if path.exists():
        return
    if stat.S_ISDIR(os.fstat(source).st_mode):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
