"""System calls that Python has no name for, and the constants that go with them."""

import ctypes
import os
import platform
import struct
from typing import Any, Final

MACHINE: Final = platform.machine()

SYSCALLS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {"pivot_root": 155, "seccomp": 317, "capset": 126},
    "aarch64": {"pivot_root": 41, "seccomp": 277, "capset": 91},
}
"""Numbers that differ between the machines; those given since Linux 5.1 are the same on all."""
COMMON: Final = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "openat2": 437,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_GET_CHILD_SUBREAPER: Final = 37
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

AT_FDCWD: Final = -100
_RESOLVE_NO_SYMLINKS: Final = 4
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000
MNT_DETACH: Final = 2

_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def syscall(name: str, *args: Any) -> int:
    """The result of the system call; OSError when it fails, KeyError where the call's number is unknown."""
    number = COMMON.get(name) or SYSCALLS[MACHINE][name]
    return _checked(name, _libc.syscall(ctypes.c_long(number), *map(_word, args)))


def prctl(option: int, *args: int) -> int:
    """As `syscall`."""
    words = [ctypes.c_ulong(each) for each in (*args, 0, 0, 0, 0)[:4]]
    return _checked(f"prctl {option}", _libc.prctl(ctypes.c_int(option), *words))


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _checked("unshare", _libc.unshare(ctypes.c_int(flags)))


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
    """As mount(2)."""
    _checked("mount", _libc.mount(source, target, kind, ctypes.c_ulong(flags), data))


def umount(target: bytes, flags: int) -> None:
    """As umount2(2)."""
    _checked("umount", _libc.umount2(target, ctypes.c_int(flags)))


def hold(path: str) -> int:
    """A descriptor of the path itself; OSError when there is a symbolic link in it.

    For a path that was followed before: a process that may write above it could have made a link there since.
    """
    how = struct.pack("<QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    return syscall("openat2", AT_FDCWD, os.fsencode(path), how, len(how))


def drop_capabilities() -> None:
    """Give up every capability for good."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            # The kernel does not know this capability, or the process may not drop it: nor can it gain it.
            break
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def _word(value: Any) -> Any:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _checked(name: str, answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return answer
