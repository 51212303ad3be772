"""What every technique finds: files, processes, sockets and secrets that are none of its business."""

import ctypes
import os
import platform
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

SECRET: Final = "the crown jewels"
NAME: Final = "SECRET_OF_THE_PARENT"
IS_X86: Final = platform.machine() == "x86_64"

Given = Literal["plain", "programs", "net", "reader"]


class Scene(NamedTuple):
    """Where the things are that are outside."""

    outside: str
    """A folder that everybody may read and write; `secret` and `mine` are files in it.

    The secret has an attribute `user.mark`, and `link` is a symbolic link to it.
    """
    allowed: str
    """A folder that may be read, with a file `open`."""
    work: str
    """A folder that may be written."""
    victim: int
    """A process of the same user, in a group of its own, that holds a pipe and sleeps."""
    victim_word: int
    """Where in its memory the secret is."""
    victim_pipe: int
    supervisor: int
    tcp: int
    allowed_tcp: int
    """A port that the plan `net` allows."""
    udp: int
    unix: str
    """The path of a listening socket in `work`."""
    datagrams: str
    """The path of a datagram socket in `outside`."""
    abstract: str
    descriptor: int
    """Of the open secret, inherited."""
    folder: int
    listener: int
    terminal: int
    """A terminal, inherited; -1 where there is none."""
    shared: int
    """A segment of shared memory with the secret."""
    variables: tuple[int, int]
    """Where the variables of the first process begin, and how long they are."""
    variable: int
    """Where Python keeps the secret one."""
    most_files: int
    program: bytes
    """An ELF file that ends with 0."""
    set_id: str
    """A program that is set-uid root and prints its uid; empty where there is none."""

    @property
    def secret(self) -> str:
        """Its path."""
        return f"{self.outside}/secret"

    @property
    def mine(self) -> str:
        """A file outside that belongs to the user."""
        return f"{self.outside}/mine"


class Technique(NamedTuple):
    """A way out. It has worked when it returns; or, if it `hurts`, when the victim is gone."""

    name: str
    call: Callable[[Scene], Any]
    given: Given
    hurts: bool
    only_namespaces: str
    """Why it is no escape where there are no namespaces; empty if it is."""


TECHNIQUES: Final[dict[str, Technique]] = {}


def technique(
    given: Given = "plain", *, hurts: bool = False, only_namespaces: str = ""
) -> Callable[[Callable[[Scene], Any]], Callable[[Scene], Any]]:
    """Take it into the battery."""

    def take(call: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
        name = getattr(call, "__name__", "")
        TECHNIQUES[name] = Technique(name, call, given, hurts, only_namespaces)
        return call

    return take


_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "add_key": (248, 217), "bpf": (321, 280), "clone": (56, 220), "clone3": (435, 435),
    "execveat": (322, 281), "futex": (202, 98), "futex_requeue": (456, 456), "getpid": (39, 172),
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26), "io_setup": (206, 0), "io_uring_setup": (425, 425),
    "ioprio_get": (252, 31), "keyctl": (250, 219), "landlock_create_ruleset": (444, 444),
    "listmount": (458, 458), "memfd_create": (319, 279), "memfd_secret": (447, 447), "mount": (165, 40),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "openat2": (437, 437),
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "rt_sigqueueinfo": (129, 138),
    "semget": (64, 190), "setns": (308, 268),
    "shmat": (30, 196), "shmget": (29, 194), "syslog": (103, 116), "unshare": (272, 97),
    "userfaultfd": (323, 282), "vmsplice": (278, 75),
}  # fmt: skip
"""On x86_64 and aarch64."""


def call(name: str, *args: Any) -> int:
    """A system call without the C library's opinion; OSError when it is refused."""
    number = _NUMBERS[name][0 if IS_X86 else 1]
    return raw(number, *args)


def raw(number: int, *args: Any) -> int:
    """As `call`, by number."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in args]
    answer = int(_libc.syscall(ctypes.c_long(number), *words))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def libc() -> Any:
    """The C library."""
    return _libc
