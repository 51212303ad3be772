"""What a confined process may not tell a descriptor: commands of fcntl, ioctl, flock and setsockopt.

A descriptor of a file that may only be read is enough for most of them, and Landlock looks at none.
"""

import errno
from typing import Final

from penstock.sandbox.bpf import Refusal, Test, has_any, when

_SET_OWNER: Final = (8, 15)
"""F_SETOWN and F_SETOWN_EX name the process that gets signals about a descriptor."""
_SET_SIGNAL: Final = 10
_SET_FLAGS, _ASYNC = 4, 0o20000
_LEASES: Final = (1024, 1040)
"""F_SETLEASE and F_SETDELEG: other processes that open the file, or change the folder, have to wait."""
_NOTIFY: Final = 1026
_SET_PIPE_SIZE: Final = 1031
_WRITE_HINTS: Final = (1036, 1038)
"""F_SET_RW_HINT and F_SET_FILE_RW_HINT change the file, though it may be open for reading only."""
_REFUSED_COMMANDS: Final = (*_SET_OWNER, _SET_SIGNAL, *_LEASES, _NOTIFY, _SET_PIPE_SIZE, *_WRITE_HINTS)
_KNOWN_COMMANDS: Final = (
    *(*range(8), 9, 11, 16, 17, 36, 37, 38),
    *(1025, *range(1027, 1031), *range(1032, 1036), 1037),
)
"""Duplicates, flags and locks, and what only asks. Others get EINVAL, as from a kernel without them."""

_TERMINAL: Final = {
    "TIOCSTI": 0x5412,
    "TIOCSCTTY": 0x540E,
    "TIOCLINUX": 0x541C,
    "TIOCCONS": 0x541D,
    "TIOCSETD": 0x5423,
}
_FIOASYNC: Final = 0x5452
"""Lets a descriptor signal."""
_TYPE_OF_REQUEST: Final = 0xFF00
_SOCKET_REQUESTS, _SIOCATMARK = 0x8900, 0x8905
"""Requests to sockets name who is signalled, and tell of the machine's interfaces; the one is harmless."""
_FILE_REQUESTS: Final = (0x6600, 0x5800, 0x7600, 0x9400)
"""Requests to file systems: flags, quota projects, generations, verity, encryption, snapshots."""
_HARMLESS_FILE_REQUESTS: Final = {
    "FS_IOC_GETFLAGS": 0x80086601,
    "FS_IOC_FSGETXATTR": 0x801C581F,
    "FICLONE": 0x40049409,
    "FICLONERANGE": 0x4020940D,
}
"""They only ask, or write through a descriptor that is open for writing."""

_LOCK_EXCLUSIVE: Final = 2
_SOL_SOCKET: Final = 1
_PROGRAMS: Final = (26, 50, 51, 52)
"""SO_ATTACH_FILTER and its siblings: programs in the kernel, and memory that no limit counts."""
_BUFFER_SIZES: Final = (7, 8)
"""SO_SNDBUF and SO_RCVBUF."""


def refusals(*, can_write: bool, has_root: bool, is_memory_limited: bool) -> dict[str, list[Refusal]]:
    """By name of the system call."""
    found = {"fcntl": _fcntl(), "ioctl": _ioctl(has_root=has_root)}
    found["setsockopt"] = [when(Test(1, _SOL_SOCKET), Test(2, option)) for option in _PROGRAMS]
    if is_memory_limited:
        # Answered as done: a size is a hint, and the kernel bounds it silently as well.
        ignored = [when(Test(1, _SOL_SOCKET), Test(2, option), code=0) for option in _BUFFER_SIZES]
        found["setsockopt"] += ignored
    if not can_write:
        # A process that may only read a file has no reason to lock other readers out.
        found["flock"] = [when(has_any(1, _LOCK_EXCLUSIVE))]
    return found


def _fcntl() -> list[Refusal]:
    refused = [when(Test(1, command)) for command in _REFUSED_COMMANDS]
    unknown = when(*(Test(1, command, is_not=True) for command in _KNOWN_COMMANDS), code=errno.EINVAL)
    return [when(Test(1, _SET_FLAGS), has_any(2, _ASYNC)), *refused, unknown]


def _ioctl(*, has_root: bool) -> list[Refusal]:
    found = [when(Test(1, request)) for request in (*_TERMINAL.values(), _FIOASYNC)]
    found.append(
        when(Test(1, _SOCKET_REQUESTS, _TYPE_OF_REQUEST), Test(1, _SIOCATMARK, is_not=True)),
    )
    if not has_root:
        harmless = [Test(1, request, is_not=True) for request in _HARMLESS_FILE_REQUESTS.values()]
        found += [when(Test(1, kind, _TYPE_OF_REQUEST), *harmless) for kind in _FILE_REQUESTS]
    return found
