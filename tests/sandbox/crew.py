"""Who runs the tests: root or an ordinary user, with namespaces or where a container forbids them."""

import errno
import os
import stat
import sys
from pathlib import Path
from typing import Final

from penstock.sandbox import available, bpf, linux
from penstock.sandbox.bpf import Refusal, Test
from penstock.sandbox.linux import AT_FDCWD, syscall

NOBODY: Final = 65534
CREWS: Final = ("root", "ordinary", "root-contained", "ordinary-contained")
"""Contained: as under the default profile of container engines, which refuses new namespaces.

Beside them there are `old`: contained on a kernel without Landlock, where nothing can be enforced; and
`root-powerless`: root without any capability.
"""
_UNSHARE: Final = {"x86_64": 272, "aarch64": 97}
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE3: Final = 435


def crews() -> list[str]:
    """Those that this user can be here."""
    could_be = [each for each in CREWS if os.geteuid() == 0 or each.startswith("ordinary")]
    is_contained = available.namespaces_fail() is not None
    return [each for each in could_be if each.endswith("contained") or not is_contained]


def become(crew: str, *command: str) -> None:
    """Run a module with its arguments, as the crew, instead of this program."""
    if os.geteuid() == 0 and crew != "root":
        _open_the_way()
    if crew == "root-powerless":
        linux.drop_capabilities()
    elif crew != "root" and crew != "ordinary":
        _contain(has_landlock=crew != "old")
    if os.geteuid() == 0 and not crew.startswith("root"):
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    os.execv(sys.executable, [sys.executable, "-m", *command])


def _contain(*, has_landlock: bool) -> None:
    if os.geteuid():
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    refusals = {
        _UNSHARE[linux.MACHINE]: [Refusal(errno.EPERM)],
        _CLONE[linux.MACHINE]: [Refusal(errno.EPERM, [Test(0, 0, 0x7E020000, is_not=True)])],
        _CLONE3: [Refusal(errno.ENOSYS)],
    }
    if not has_landlock:
        refusals[linux.COMMON["landlock_create_ruleset"]] = [Refusal(errno.ENOSYS)]
    bpf.install(bpf.assemble(linux.MACHINE, refusals, 0x3FFFFFFF, errno.ENOSYS))


def _open_the_way() -> None:
    """Where the interpreter lies in a closed folder, such as root's home: lay a passable one over it."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, b"/", None, linux.MS_REC | linux.MS_PRIVATE, None)
    for path in map(os.path.realpath, (sys.base_prefix, sys.prefix, __file__)):
        closed = next((each for each in reversed(Path(path).parents) if not _is_open(each)), None)
        if closed is None:
            continue
        below = Path(path).relative_to(closed).parts[0]
        source = syscall("open_tree", AT_FDCWD, os.fsencode(closed / below), 1 | 0x8000)
        linux.mount(b"none", os.fsencode(closed), b"tmpfs", 0, b"mode=755")
        (closed / below).mkdir()
        syscall("move_mount", source, b"", AT_FDCWD, os.fsencode(closed / below), 4)
        os.close(source)


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


if __name__ == "__main__":
    become(*sys.argv[1:])
