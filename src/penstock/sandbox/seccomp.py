"""Which system calls a confined process may not make, and why."""

import errno
import os
from typing import Final, NamedTuple

from penstock.sandbox import bpf
from penstock.sandbox.bpf import Refusal, Test
from penstock.sandbox.linux import MACHINE
from penstock.sandbox.syscalls import NEWEST, numbers

REFUSED: Final = {
    "memory and descriptors of other processes": (
        "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp"
        " move_pages migrate_pages"
    ),
    "doors that later checks do not see": "io_uring_setup io_uring_enter io_uring_register userfaultfd",
    "keys, programs in the kernel, its events": (
        "add_key request_key keyctl bpf perf_event_open fanotify_init lookup_dcookie syslog"
    ),
    "another view of the files": (
        "mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr"
        " statmount listmount name_to_handle_at open_by_handle_at quotactl quotactl_fd"
    ),
    "other namespaces": "unshare setns",
    "the machine itself": (
        "kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff sethostname"
        " setdomainname settimeofday clock_settime adjtimex clock_adjtime acct vhangup modify_ldt iopl ioperm"
    ),
    "memory that no limit counts": (
        "memfd_create memfd_secret shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv"
        " msgctl mq_open mq_unlink"
    ),
    "programs without a path": "execveat",
    "the network; the broker hands in what is allowed": "socket connect bind listen accept accept4",
}
METADATA: Final = (
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat setxattr lsetxattr fsetxattr removexattr"
    " lremovexattr fremovexattr utime utimes utimensat futimesat inotify_add_watch"
)
"""Landlock does not look at these: without a root of its own a process does without them."""
OTHERS: Final = "sched_setaffinity sched_setattr sched_setparam sched_setscheduler"
"""Take a pid: without a PID namespace only 0, the caller."""

_NEW_NAMESPACES: Final = 0x7E020000
_SET_ID: Final = 0o6000
_O_CREAT: Final = 0o100
_MSG_FASTOPEN: Final = 0x20000000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE = 1, 1, 0xF
_SET_OWNER: Final = (8, 15)
"""What fcntl is told to name the process that gets signals about a descriptor; and ioctl:"""
_SET_OWNER_BY_IOCTL: Final = (0x8901, 0x8902)
_TERMINAL: Final = {
    "TIOCSTI": 0x5412,
    "TIOCSCTTY": 0x540E,
    "TIOCLINUX": 0x541C,
    "TIOCCONS": 0x541D,
    "TIOCSETD": 0x5423,
}


class Standing(NamedTuple):
    """What else holds the process, and so need not be refused here."""

    can_run: bool
    """It may start programs."""
    has_pids: bool
    """It sees no processes but its own."""
    has_root: bool
    """It sees no files but its own."""
    has_scope: bool
    """It cannot signal others. Without that, processes that it forks can signal nobody at all."""


def refusals(standing: Standing, pid: int) -> dict[str, list[Refusal]]:
    """By name, for the process with this pid and its children."""
    never = [Refusal(errno.EPERM)]
    found = {name: never for names in REFUSED.values() for name in names.split()}
    # The C library then takes the older call, whose arguments can be seen.
    found |= {name: [Refusal(errno.ENOSYS)] for name in ("clone3", "openat2")}
    found["clone"] = [_when(_any(0, _NEW_NAMESPACES))]
    found["personality"] = [_when(Test(0, 0xFFFFFFFF, is_not=True))]
    found["prlimit64"] = [_when(Test(0, 0, is_not=True))]
    found["ioctl"] = [_when(Test(1, request)) for request in _TERMINAL.values()]
    found |= _sockets() | _set_id()
    if not standing.can_run:
        found["execve"] = never
    if not standing.has_root:
        found |= dict.fromkeys(METADATA.split(), never)
    if not standing.has_pids:
        found |= {name: [_when(Test(0, 0, is_not=True))] for name in OTHERS.split()}
        for name, this_process in (("setpriority", 0), ("ioprio_set", 1)):
            found[name] = [_when(Test(0, this_process, is_not=True)), _when(Test(1, 0, is_not=True))]
    if not standing.has_scope:
        found |= _signals(pid)
        found["ioctl"] = [*found["ioctl"], *(_when(Test(1, request)) for request in _SET_OWNER_BY_IOCTL)]
    return found


def install(standing: Standing) -> None:
    """Refuse these calls from now on, here and in all children."""
    number = numbers(MACHINE)
    named = refusals(standing, os.getpid())
    by_number = {number[name]: whens for name, whens in named.items() if name in number}
    bpf.install(bpf.assemble(MACHINE, by_number, NEWEST, errno.ENOSYS))


def _sockets() -> dict[str, list[Refusal]]:
    """Pairs of stream sockets only: a datagram socket could name any receiver."""
    return {
        "socketpair": [
            _when(Test(0, _AF_UNIX, is_not=True)),
            _when(Test(1, _SOCK_STREAM, _SOCK_TYPE, is_not=True)),
        ],
        "sendto": [
            _when(Test(4, 0, is_not=True)),
            _when(Test(4, 0, is_not=True, half=1)),
            _when(_any(3, _MSG_FASTOPEN)),
        ],
        "sendmsg": [_when(_any(2, _MSG_FASTOPEN))],
        "sendmmsg": [_when(_any(3, _MSG_FASTOPEN))],
    }


def _signals(pid: int) -> dict[str, list[Refusal]]:
    """Only to this process and, by 0, to its group; not by a descriptor either."""
    another = Test(0, pid, is_not=True)
    found = {name: [_when(another)] for name in ("tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")}
    found |= {name: [Refusal(errno.EPERM)] for name in ("tkill", "pidfd_send_signal")}
    found["kill"] = [_when(another, Test(0, 0, is_not=True))]
    found["fcntl"] = [_when(Test(1, command)) for command in _SET_OWNER]
    return found


def _set_id() -> dict[str, list[Refusal]]:
    """No file of the task's user on which others would run as that user."""
    where = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
    found = {name: [_when(_any(mode, _SET_ID))] for name, mode in where.items()}
    for name, flags in (("open", 1), ("openat", 2)):
        found[name] = [_when(_any(flags, _O_CREAT), _any(flags + 1, _SET_ID))]
    return found


def _when(*tests: Test) -> Refusal:
    return Refusal(errno.EPERM, tests)


def _any(argument: int, bits: int) -> Test:
    return Test(argument, 0, bits, is_not=True)
