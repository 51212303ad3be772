"""Which files Python and the app need to run, and where a path really leads."""

import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigError
from penstock.sandbox.permissions import Permissions

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SYSTEM: Final = (
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
)
"""Shared libraries, time zones and public certificates."""


class Walk:
    """Resolves paths and records the symbolic links on the way."""

    def __init__(self) -> None:
        self.links: dict[str, str] = {}

    def real(self, path: str) -> str | None:
        """The path without links; None when nothing is there."""
        done = ""
        ahead = [part for part in path.split("/") if part and part != "."][::-1]
        for _ in range(256):
            if not ahead:
                return done or "/"
            part = ahead.pop()
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}"
            try:
                is_link = stat.S_ISLNK(os.lstat(here).st_mode)
            except OSError:
                return None
            if is_link:
                target = os.readlink(here)  # noqa: PTH115 (a Path would tidy what the link says)
                self.links[here] = target
                done = "" if target.startswith("/") else done
                ahead += [each for each in target.split("/") if each and each != "."][::-1]
            else:
                done = here
        return None


def seen(permissions: Permissions) -> tuple[tuple[int, int] | None, ...]:
    """Device and inode of all that is granted, as they are now.

    A confined process holds what was there when it began. Where this has become another since, it would read
    and write what was replaced.
    """
    programs = [shutil.which(each) or each for each in permissions.run]
    return tuple(_inode(each) for each in (*permissions.read, *permissions.write, *programs))


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (each job asks)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_links(permissions: Permissions, links: Iterable[tuple[str, str]]) -> None:
    """ConfigError for a path that is gone, or that is not reached by these links any more.

    Links are followed when a worker starts and not again: another task may be allowed to lay them.
    """
    known = set(links)
    for path in (*permissions.read, *permissions.write):
        walk = Walk()
        if walk.real(path) is None:
            raise ConfigError(f"{path} is gone")
        if moved := walk.links.items() - known:
            link, target = min(moved)
            raise ConfigError(
                f"{path} leads elsewhere than when the worker started, for {link} is a link to {target} now: "
                "start the worker again"
            )


def interpreter() -> list[str]:
    """The files that the interpreter reads: its libraries, those of the system, and installed packages."""
    named = sysconfig.get_paths()
    places = [named[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [f"{sys.base_prefix}/lib", f"{sys.base_exec_prefix}/lib", f"{sys.prefix}/pyvenv.cfg"]
    places += [each for each in sys.path if "site-packages" in each or "dist-packages" in each]
    return [each for each in (*places, *_SYSTEM) if os.path.exists(each)]  # noqa: PTH110


def _search_path() -> list[str]:
    """The folders of the app's own code: those that Python searches and that are not the interpreter's."""
    ours = interpreter()
    found = [str(Path(each).absolute()) for each in sys.path]
    return [each for each in dict.fromkeys(found) if Path(each).is_dir() and not is_below(each, ours)]


def app_code() -> list[str]:
    """What can be imported from the app's folders, and what was imported already.

    Not the folders as a whole: settings with passwords and databases often lie beside the code. A package
    without an `__init__` looks like any folder, so it counts only if it was imported.
    """
    found = [path for folder in _search_path() for path in _importable(Path(folder))]
    found += [each for each in sys.path if Path(each).is_file()]
    return list(dict.fromkeys([*found, *_imported()]))


def covered(paths: Iterable[str]) -> list[str]:
    """The paths without those that lie in another one, each after those above it."""
    kept: list[str] = []
    for path in sorted(set(paths), key=lambda each: each.split("/")):
        if not is_below(path, kept):
            kept.append(path)
    return kept


def _importable(folder: Path) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda each: each.name)
    except OSError:
        return
    for entry in entries:
        name, dot, ending = entry.name.partition(".")
        if entry.is_dir():
            is_package = not dot and name.isidentifier() and any(Path(entry.path).glob("__init__.*"))
            if is_package or entry.name.endswith((".dist-info", ".egg-info")) or name == "__pycache__":
                yield entry.path
        elif name.isidentifier() and (ending in ("py", "pyc") or ending.endswith("so")):
            yield entry.path


def _imported() -> Iterator[str]:
    """Files of modules; folders of packages, those without a file of their own included."""
    for name, module in list(sys.modules.items()):
        if "." in name:
            continue
        file = getattr(module, "__file__", None)
        folders = list(getattr(module, "__path__", ()))
        if folders:
            yield from (each for each in folders if os.path.isdir(each))  # noqa: PTH112
        elif file and os.path.isabs(file):  # noqa: PTH117
            yield file


def is_below(path: str, folders: Iterable[str]) -> bool:
    """True when the path is one of these folders or lies below one."""
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in folders)
