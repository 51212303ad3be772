"""Which system calls a confined process may not make, and why."""

import errno
import os
from typing import Final, NamedTuple

from penstock.sandbox import bpf, descriptors
from penstock.sandbox.bpf import Refusal, Test, has_any, when
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
    "what the system has a number of for all": "io_setup",
    "memory that no limit counts": (
        "memfd_create memfd_secret shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv"
        " msgctl mq_open mq_unlink"
    ),
    "programs without a path": "execveat",
    "the network; the broker hands in what is allowed": "socket connect bind listen accept accept4",
}
METADATA: Final = (
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat setxattr lsetxattr fsetxattr removexattr"
    " lremovexattr fremovexattr utime utimes utimensat futimesat inotify_init inotify_init1 inotify_add_watch"
)
"""Landlock does not look at these: without a root of its own a process does without them."""
ATTRIBUTES: Final = "getxattr lgetxattr listxattr llistxattr"
"""Nor at these, which read attributes of files that may not be read; programs know systems without them."""
OTHERS: Final = "sched_setaffinity sched_setattr sched_setparam sched_setscheduler"
"""Take a pid: without a PID namespace only 0, the caller."""
PROBES: Final = "sched_getscheduler sched_getparam sched_getattr sched_rr_get_interval"
"""Take a pid as well: without a PID namespace only 0 or that of the process."""
CLOCKS: Final = "clock_gettime clock_getres clock_nanosleep timer_create"
"""Take a clock, and the CPU time of each process is one."""
PINNING: Final = "splice tee vmsplice sendfile"
"""Keep pages alive that are mapped no more, or whose file is gone. Programs copy instead."""
MOVED_WAITERS: Final = (3, 4)
"""FUTEX_REQUEUE and FUTEX_CMP_REQUEUE: a thread that waits for one word then waits for another."""
RULES: Final = "landlock_create_ruleset landlock_add_rule landlock_restrict_self"
"""Sets of rules for further confinement take as much memory as there are rules."""

_NEW_NAMESPACES: Final = 0x7E020000
_SET_ID: Final = 0o6000
_CREATES: Final = 0o20000100
"""O_CREAT, and the bit of O_TMPFILE that is its own: with either of them a mode is given."""
_MSG_FASTOPEN: Final = 0x20000000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE = 1, 1, 0xF
_FUTEX_COMMAND: Final = 0xFF
"""With FUTEX_PRIVATE_FLAG, which keeps to words of the process itself."""
_CLOCK_KIND, _CLOCK_OF_PROCESS, _CLOCK_OWNER = 0x80000004, 0x80000000, 0xFFFFFFFC
"""A clock of CPU time is the inverted pid, shifted by 3; the kernel gives threads' only to their process."""


class Standing(NamedTuple):
    """Which other means confine the process, so that the filter need not."""

    can_run: bool
    """It may start programs."""
    has_pids: bool
    """It sees no processes but its own."""
    has_root: bool
    """It sees no files but its own."""
    has_scope: bool
    """It cannot signal others. Without that, processes that it forks can signal nobody at all."""
    can_write: bool
    """There are files that it may write."""
    is_memory_limited: bool
    """Its memory is bounded, so what the bound does not count is kept small."""


def refusals(standing: Standing, pid: int) -> dict[str, list[Refusal]]:
    """By name, for the process with this pid and its children."""
    never = [Refusal(errno.EPERM)]
    found = {name: never for names in REFUSED.values() for name in names.split()}
    # The C library then makes the older call, whose arguments the filter can read.
    found |= {name: [Refusal(errno.ENOSYS)] for name in ("clone3", "openat2", "futex_requeue")}
    # Also in a file that may only be read: processes that wait there for a lock would never be woken.
    found["futex"] = [when(Test(1, command, _FUTEX_COMMAND)) for command in MOVED_WAITERS]
    found["clone"] = [when(has_any(0, _NEW_NAMESPACES))]
    found["personality"] = [when(Test(0, 0xFFFFFFFF, is_not=True))]
    found["prlimit64"] = [when(Test(0, 0, is_not=True))]
    found |= _sockets() | _set_id()
    found |= descriptors.refusals(
        can_write=standing.can_write,
        has_root=standing.has_root,
        is_memory_limited=standing.is_memory_limited,
    )
    if not standing.can_run:
        found["execve"] = never
    if standing.is_memory_limited:
        found |= _uncounted_memory()
    if not standing.has_root:
        found |= dict.fromkeys(METADATA.split(), never)
        found |= {name: [Refusal(errno.EOPNOTSUPP)] for name in ATTRIBUTES.split()}
    if not standing.has_pids:
        found |= _other_processes(pid)
    if not standing.has_scope:
        found |= _signals(pid)
    return found


def install(standing: Standing) -> None:
    """Install the filter for this process and all its children."""
    number = numbers(MACHINE)
    named = refusals(standing, os.getpid())
    by_number = {number[name]: whens for name, whens in named.items() if name in number}
    bpf.install(bpf.assemble(MACHINE, by_number, NEWEST, errno.ENOSYS))


def _sockets() -> dict[str, list[Refusal]]:
    """Pairs of stream sockets only: a datagram socket could name any receiver."""
    return {
        "socketpair": [
            when(Test(0, _AF_UNIX, is_not=True)),
            when(Test(1, _SOCK_STREAM, _SOCK_TYPE, is_not=True)),
        ],
        "sendto": [
            when(Test(4, 0, is_not=True)),
            when(Test(4, 0, is_not=True, half=1)),
            when(has_any(3, _MSG_FASTOPEN)),
        ],
        "sendmsg": [when(has_any(2, _MSG_FASTOPEN))],
        "sendmmsg": [when(has_any(3, _MSG_FASTOPEN))],
    }


def _uncounted_memory() -> dict[str, list[Refusal]]:
    """The errors are those of a system without the feature, or at its own limit."""
    found = {name: [Refusal(errno.EINVAL)] for name in PINNING.split()}
    found |= {name: [Refusal(errno.ENOSYS)] for name in RULES.split()}
    return found | {name: [Refusal(errno.EMFILE)] for name in ("inotify_init", "inotify_init1")}


def _other_processes(pid: int) -> dict[str, list[Refusal]]:
    """Refuse to schedule other processes or to ask about them."""
    found = {name: [when(Test(0, 0, is_not=True))] for name in OTHERS.split()}
    another = (Test(0, 0, is_not=True), Test(0, pid, is_not=True))
    found |= {name: [when(*another)] for name in PROBES.split()}
    # The C library asks this way about its threads, and works without the call.
    found["sched_getaffinity"] = [when(*another, code=errno.ENOSYS)]
    # asyncio tries the call on its own process, and falls back to waiting for children in threads.
    found["pidfd_open"] = [Refusal(errno.ENOSYS)]
    for names, this_process in (("setpriority getpriority", 0), ("ioprio_set ioprio_get", 1)):
        only_itself = [when(Test(0, this_process, is_not=True)), when(Test(1, 0, is_not=True))]
        found |= dict.fromkeys(names.split(), only_itself)
    own = [Test(0, ~each << 3 & _CLOCK_OWNER, _CLOCK_OWNER, is_not=True) for each in (0, pid)]
    of_another = when(Test(0, _CLOCK_OF_PROCESS, _CLOCK_KIND), *own, code=errno.EINVAL)
    return found | {name: [of_another] for name in CLOCKS.split()}


def _signals(pid: int) -> dict[str, list[Refusal]]:
    """Allow signals to this process and, as 0, to its process group only."""
    another = Test(0, pid, is_not=True)
    found = {name: [when(another)] for name in ("tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")}
    found |= {name: [Refusal(errno.EPERM)] for name in ("tkill", "pidfd_send_signal")}
    found["kill"] = [when(another, Test(0, 0, is_not=True))]
    return found


def _set_id() -> dict[str, list[Refusal]]:
    """Refuse to make files set-uid or set-gid: others would run them as the task's user."""
    where = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
    found = {name: [when(has_any(mode, _SET_ID))] for name, mode in where.items()}
    for name, flags in (("open", 1), ("openat", 2)):
        found[name] = [when(has_any(flags, _CREATES), has_any(flags + 1, _SET_ID))]
    return found
