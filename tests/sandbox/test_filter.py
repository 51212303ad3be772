"""The filter says what it should, on both machines: run here step by step, as the kernel would."""

import errno
import re
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.sandbox.bpf import ALLOW, ERRNO, KILL, Instruction, assemble
from penstock.sandbox.seccomp import (
    ATTRIBUTES,
    CLOCKS,
    METADATA,
    OTHERS,
    PINNING,
    PROBES,
    REFUSED,
    RULES,
    Standing,
    refusals,
)
from penstock.sandbox.syscalls import NEWEST, numbers

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
EPERM, ENOSYS = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
EINVAL, EMFILE, EOPNOTSUPP = ERRNO | errno.EINVAL, ERRNO | errno.EMFILE, ERRNO | errno.EOPNOTSUPP
IGNORED = ERRNO
HARMLESS = {
    "x86_64": {"read": 0, "write": 1, "mmap": 9, "fork": 57, "kill": 62, "futex": 202, "getrandom": 318},
    "aarch64": {"read": 63, "write": 64, "mmap": 222, "kill": 129, "futex": 98, "getrandom": 278},
}
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
MSG_FASTOPEN, NEWUSER, THREAD = 0x20000000, 0x10000000, 0x3D0F00
CREATE, SET_UID = 0o100, 0o4755
TEMPORARY = {"x86_64": 0o20200000, "aarch64": 0o20040000}
"""O_TMPFILE; the bit of a folder, which is part of it, differs."""
SELF = 70_000
machines = pytest.mark.parametrize("machine", AUDIT)


def execute(steps: Sequence[Instruction], arch: int, number: int, args: Sequence[int]) -> int:
    """What the program answers to a system call."""
    words = {0: number, 4: arch}
    for place, argument in enumerate((*args, 0, 0, 0, 0, 0, 0)[:6]):
        words[16 + 8 * place] = argument & 0xFFFFFFFF
        words[20 + 8 * place] = argument >> 32 & 0xFFFFFFFF
    value, at = 0, 0
    for _ in range(len(steps)):
        code, jt, jf, k = steps[at]
        at += 1
        match code:
            case 0x20:
                value = words[k]
            case 0x54:
                value &= k
            case 0x06:
                return k
            case 0x15 | 0x25 | 0x35:
                holds = {0x15: value == k, 0x25: value > k, 0x35: value >= k}[code]
                at += jt if holds else jf
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")
    raise AssertionError("the program does not end")


class Filter:
    """The filter of one machine."""

    def __init__(
        self,
        machine: str,
        *,
        can_run: bool = False,
        is_alone: bool = True,
        has_scope: bool = True,
        can_write: bool = True,
        is_memory_limited: bool = False,
    ) -> None:
        self.machine = machine
        self.numbers = numbers(machine)
        standing = Standing(can_run, is_alone, is_alone, has_scope, can_write, is_memory_limited)
        named = refusals(standing, SELF)
        by_number = {self.numbers[name]: whens for name, whens in named.items() if name in self.numbers}
        self.steps = assemble(machine, by_number, NEWEST, errno.ENOSYS)

    def __call__(self, name: str, *args: int) -> int:
        number = self.numbers.get(name, HARMLESS[self.machine].get(name, -1))
        return execute(self.steps, AUDIT[self.machine], number, args)


@machines
def test_the_list_of_numbers_is_the_kernels(machine: str) -> None:
    """As far as the headers of this system go."""
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip("there are no headers of the kernel here")
    text = header.read_text()
    known = {
        name: int(number) for name, number in re.findall(r"__NR(?:3264)?_(\w+) (\d+)$", text, re.MULTILINE)
    }
    ours = numbers(machine)
    assert {name: ours[name] for name in ours.keys() & known} == {
        name: known[name] for name in ours.keys() & known
    }


@machines
def test_calls_of_another_machine_kill(machine: str) -> None:
    """32-bit ones, and those of x32."""
    filtered = Filter(machine)
    for arch in (0x40000003, 0x40000028, *(set(AUDIT.values()) - {AUDIT[machine]})):
        assert execute(filtered.steps, arch, 0, ()) == KILL
    if machine == "x86_64":
        assert execute(filtered.steps, AUDIT[machine], 0x40000000 + 1, ()) == KILL


@machines
def test_what_is_newer_than_the_list_is_not_there(machine: str) -> None:
    """Until someone has looked at it."""
    filtered = Filter(machine)
    for number in (NEWEST + 1, NEWEST + 7, 0x3FFFFFFF):
        assert execute(filtered.steps, AUDIT[machine], number, ()) == ENOSYS


@machines
def test_harmless_calls_are_allowed(machine: str) -> None:
    """Also where the process is not alone."""
    for name in HARMLESS[machine]:
        assert Filter(machine)(name) == Filter(machine, is_alone=False)(name) == ALLOW


@machines
def test_every_refused_call_is_refused(machine: str) -> None:
    """Whatever its arguments."""
    filtered = Filter(machine)
    for name in " ".join(REFUSED.values()).split():
        if name in filtered.numbers:
            assert filtered(name) == filtered(name, *[0xFFFFFFFFFFFFFFFF] * 6) == EPERM
    assert filtered("clone3") == filtered("openat2") == ENOSYS


@machines
def test_programs_need_a_permission(machine: str) -> None:
    """And never come without a path."""
    assert Filter(machine)("execve") == EPERM
    assert Filter(machine, can_run=True)("execve") == ALLOW
    assert Filter(machine, can_run=True)("execveat") == EPERM


@machines
def test_without_a_root_of_its_own_a_process_changes_no_metadata(machine: str) -> None:
    """Landlock does not see it."""
    for name in METADATA.split():
        if name in numbers(machine):
            assert Filter(machine, is_alone=False)(name) == EPERM
            assert Filter(machine)(name) == ALLOW


@machines
def test_without_pids_of_its_own_a_process_schedules_only_itself(machine: str) -> None:
    """Zero is the caller."""
    among = Filter(machine, is_alone=False)
    for name in OTHERS.split():
        assert (among(name, 0), among(name, 7)) == (ALLOW, EPERM)
        assert Filter(machine)(name, 7) == ALLOW
    assert among("setpriority", 0, 0, 5) == ALLOW
    assert among("setpriority", 0, 7, 5) == among("setpriority", 2, 0, 5) == EPERM
    assert among("ioprio_set", 1, 0) == ALLOW
    assert among("ioprio_set", 1, 7) == among("ioprio_set", 3, 0) == EPERM
    assert (among("prlimit64", 0), among("prlimit64", 7)) == (ALLOW, EPERM)


@machines
@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("clone", (THREAD,), (THREAD | NEWUSER,)),
        ("clone", (17,), (0x20000000 | 17,)),
        ("personality", (0xFFFFFFFF,), (0x0040000,)),
        ("ioctl", (1, 0x5401), (1, 0x5412)),
        ("ioctl", (1, 0x5413), (1, 0xDEADBEEF_00005412)),
        ("socketpair", (1, 1), (1, 2)),
        ("socketpair", (1, 1 | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK), (1, 5)),
        ("socketpair", (1, 1), (2, 1)),
        ("sendto", (3, 4, 5, 0, 0, 0), (3, 4, 5, 0, 0x1000, 16)),
        ("sendto", (3, 4, 5, 0x4000, 0, 0), (3, 4, 5, 0, 0x7F00_0000_0000, 16)),
        ("sendto", (3, 4, 5, 0, 0, 0), (3, 4, 5, MSG_FASTOPEN, 0, 0)),
        ("sendmsg", (3, 4, 0x4000), (3, 4, MSG_FASTOPEN)),
        ("sendmmsg", (3, 4, 1, 0), (3, 4, 1, MSG_FASTOPEN | 0x40)),
        ("openat", (3, 4, CREATE, 0o755), (3, 4, CREATE | 1, SET_UID)),
        ("openat", (3, 4, 0, SET_UID), (3, 4, CREATE, 0o2755)),
        ("fchmod", (3, 0o755), (3, SET_UID)),
        ("fchmodat", (3, 4, 0o755), (3, 4, 0o2755)),
        ("fchmodat2", (3, 4, 0o755), (3, 4, SET_UID)),
        ("mknodat", (3, 4, 0o644), (3, 4, SET_UID)),
        *(("fcntl", (3, 4, 0o4000), (3, command, 1)) for command in (8, 10, 15, 1024, 1026)),
        *(("fcntl", (3, 1030, 1), (3, command, 1)) for command in (1031, 1036, 1038, 1040)),
        ("fcntl", (3, 4, 0o4000), (3, 4, 0o24000)),
        ("fcntl", (3, 6, 0x7F00_0000_0000), (3, 0xDEADBEEF_00000400, 1)),
        *(("ioctl", (3, 0x541B), (3, request)) for request in (0x5452, 0x8901, 0x8902)),
        *(("ioctl", (3, 0x8905), (3, request)) for request in (0x8912, 0x8915, 0x8927, 0x8946)),
        *(("setsockopt", (3, 1, 7), (3, 1, option)) for option in (26, 50, 51, 52)),
        ("setsockopt", (3, 6, 26), (3, 1, 26)),
        *(("futex", (3, command | 0x80), (3, command)) for command in (3, 4)),
        *(("futex", (3, command), (3, 3)) for command in (0, 1, 5, 9, 10)),
    ],
)
def test_arguments_decide(machine: str, name: str, allowed: Sequence[int], refused: Sequence[int]) -> None:
    """By the half of them that the kernel reads."""
    filtered = Filter(machine)
    assert filtered(name, *allowed) == ALLOW
    assert filtered(name, *refused) == EPERM


@machines
def test_a_file_without_a_name_is_not_set_uid_either(machine: str) -> None:
    """Others are made as ever, for `tempfile` needs them."""
    filtered, temporary = Filter(machine), TEMPORARY[machine]
    assert filtered("openat", 3, 4, temporary | 2, 0o600) == ALLOW
    assert filtered("openat", 3, 4, temporary | 2, SET_UID) == EPERM
    assert filtered("openat", 3, 4, temporary | 2, 0o2700) == EPERM
    if machine == "x86_64":
        assert filtered("open", 3, temporary | 2, 0o600) == ALLOW
        assert filtered("open", 3, temporary | 2, SET_UID) == EPERM


@machines
def test_commands_that_nobody_has_looked_at_are_not_there(machine: str) -> None:
    """The known ones duplicate, lock, or only ask."""
    filtered = Filter(machine)
    for command in (*range(8), 36, 37, 38, 1030, 1032):
        assert filtered("fcntl", 3, command) == ALLOW
    for command in (12, 39, 1039, 1041, 0xFFFFFFFF):
        assert filtered("fcntl", 3, command) == EINVAL


@machines
def test_who_may_only_read_locks_nobody_out(machine: str) -> None:
    """A shared lock is a reader's."""
    reader, writer = Filter(machine, can_write=False), Filter(machine)
    assert reader("flock", 3, 1) == reader("flock", 3, 8) == ALLOW
    assert reader("flock", 3, 2) == reader("flock", 3, 6) == EPERM
    assert writer("flock", 3, 2) == writer("flock", 3, 6) == ALLOW


@machines
def test_where_memory_is_limited_so_is_what_the_limit_does_not_count(machine: str) -> None:
    """By answers after which programs go on without."""
    limited, free = Filter(machine, is_memory_limited=True), Filter(machine)
    for name in PINNING.split():
        assert (limited(name), free(name)) == (EINVAL, ALLOW)
    for name in RULES.split():
        assert (limited(name), free(name)) == (ENOSYS, ALLOW)
    assert (limited("inotify_init1"), free("inotify_init1")) == (EMFILE, ALLOW)
    for option in (7, 8):
        assert (limited("setsockopt", 3, 1, option), free("setsockopt", 3, 1, option)) == (IGNORED, ALLOW)
    assert limited("setsockopt", 3, 6, 7) == limited("setsockopt", 3, 1, 9) == ALLOW
    assert limited("setsockopt", 3, 1, 26) == EPERM


@machines
def test_without_a_root_of_its_own_a_process_reads_no_attributes(machine: str) -> None:
    """But those of a file that it could open; nor does it change any by ioctl."""
    among, alone = Filter(machine, is_alone=False), Filter(machine)
    for name in ATTRIBUTES.split():
        assert (among(name), alone(name)) == (EOPNOTSUPP, ALLOW)
    for request in (0x40086602, 0x401C5820, 0x40087602, 0x40806685, 0x5000940F):
        assert (among("ioctl", 3, request), alone("ioctl", 3, request)) == (EPERM, ALLOW)
    for request in (0x80086601, 0x801C581F, 0x40049409, 0x5401, 0x541B):
        assert among("ioctl", 3, request) == ALLOW


@machines
def test_without_pids_of_its_own_a_process_asks_only_about_itself(machine: str) -> None:
    """By 0 or by its pid."""
    among, alone = Filter(machine, is_alone=False), Filter(machine)
    for name in PROBES.split():
        assert among(name, 0) == among(name, SELF) == alone(name, 7) == ALLOW
        assert among(name, 7) == EPERM
    assert (among("sched_getaffinity", 0), among("sched_getaffinity", 7)) == (ALLOW, ENOSYS)
    assert (among("getpriority", 0, 0), among("getpriority", 0, 7)) == (ALLOW, EPERM)
    assert (among("ioprio_get", 1, 0), among("ioprio_get", 1, 7)) == (ALLOW, EPERM)
    assert (among("pidfd_open", SELF), alone("pidfd_open", SELF)) == (ENOSYS, ALLOW)


@machines
def test_without_pids_of_its_own_a_process_reads_only_its_clocks(machine: str) -> None:
    """Those of threads the kernel gives to nobody else."""
    among, alone = Filter(machine, is_alone=False), Filter(machine)
    for name in CLOCKS.split():
        for kind in (0, 1, 2):
            assert among(name, (~7 << 3 | kind) & 0xFFFFFFFF) == EINVAL
            assert alone(name, (~7 << 3 | kind) & 0xFFFFFFFF) == ALLOW
            for own in (0, SELF):
                assert among(name, (~own << 3 | kind) & 0xFFFFFFFF) == ALLOW
        assert among(name, (~7 << 3 | 6) & 0xFFFFFFFF) == ALLOW
        for clock in range(12):
            assert among(name, clock) == ALLOW


def test_older_calls_of_x86_are_not_forgotten() -> None:
    """They do the same as the newer ones."""
    filtered = Filter("x86_64")
    assert filtered("open", 3, CREATE, 0o755) == ALLOW
    assert filtered("open", 3, CREATE, SET_UID) == EPERM
    assert filtered("creat", 3, SET_UID) == filtered("chmod", 3, SET_UID) == EPERM


@machines
def test_where_nothing_else_does_the_filter_keeps_signals_in(machine: str) -> None:
    """To itself and to its group; a negative number would be another group."""
    filtered, scoped = Filter(machine, has_scope=False), Filter(machine)
    for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        assert filtered(name, SELF, 9) == ALLOW
        for other in (1, SELF + 1, -SELF & 0xFFFFFFFF, -1 & 0xFFFFFFFFFFFFFFFF):
            assert filtered(name, other, 9) == EPERM
            assert scoped(name, other, 9) == ALLOW
    assert filtered("kill", 0, 15) == ALLOW
    assert filtered("tkill", SELF) == filtered("pidfd_send_signal", 3) == EPERM
