"""A small assembler for seccomp filters: for each system call, when it is refused."""

import ctypes
import errno
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.sandbox.linux import MACHINE, syscall

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
ERRNO: Final = 0x00050000

_LOAD, _JEQ, _JGT, _JGE, _JSET, _AND, _RET = 0x20, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCH, _ARGS = 0, 4, 16
"""Offsets in what the kernel shows the filter."""
_AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32: Final = 0x40000000
_SET_MODE_FILTER: Final = 1
_GET_ACTION: Final = 2


class Test(NamedTuple):
    """Holds when the argument, under the mask, is (or `is_not`: is not) the value.

    Half 0 is the low word, the only one that the kernel reads of an int; pointers have two.
    """

    argument: int
    value: int
    mask: int = 0xFFFFFFFF
    is_not: bool = False
    half: int = 0


class Refusal(NamedTuple):
    """An error number, given when all the tests hold; when there is none, always."""

    errno: int
    tests: Sequence[Test] = ()


def when(*tests: Test, code: int = errno.EPERM) -> Refusal:
    """Refused when all the tests hold. Code 0: answered as if it had been done."""
    return Refusal(code, tests)


def has_any(argument: int, bits: int) -> Test:
    """Holds when the argument has one of the bits."""
    return Test(argument, 0, bits, is_not=True)


class Instruction(NamedTuple):
    """One step: what to do, how far to jump if true and if false, and a constant."""

    code: int
    jt: int
    jf: int
    k: int


def assemble(
    machine: str, refusals: Mapping[int, Sequence[Refusal]], newest: int, unknown: int
) -> list[Instruction]:
    """The filter. Other machines' calls kill the process; a number above `newest` is answered `unknown`."""
    steps = [
        Instruction(_LOAD, 0, 0, _ARCH),
        Instruction(_JEQ, 1, 0, _AUDIT[machine]),
        Instruction(_RET, 0, 0, KILL),
        Instruction(_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        steps += [Instruction(_JGE, 0, 1, _X32), Instruction(_RET, 0, 0, KILL)]
    steps += [Instruction(_JGT, 0, 1, newest), Instruction(_RET, 0, 0, ERRNO | unknown)]
    for number, whens in sorted(refusals.items()):
        body = [step for when in whens for step in _refusal(when)]
        if body[-1].code != _RET or whens[-1].tests:
            body.append(Instruction(_RET, 0, 0, ALLOW))
        steps += [Instruction(_JEQ, 0, len(body), number), *body]
    return [*steps, Instruction(_RET, 0, 0, ALLOW)]


def _refusal(when: Refusal) -> list[Instruction]:
    steps = [Instruction(_RET, 0, 0, ERRNO | when.errno)]
    for test in reversed(when.tests):
        # A test that fails skips the rest of this refusal.
        past = len(steps)
        check = Instruction(_JEQ, past if test.is_not else 0, 0 if test.is_not else past, test.value)
        mask = [] if test.mask == 0xFFFFFFFF else [Instruction(_AND, 0, 0, test.mask)]
        load = Instruction(_LOAD, 0, 0, _ARGS + 8 * test.argument + 4 * test.half)
        steps = [load, *mask, check, *steps]
    return steps


def install(steps: Sequence[Instruction]) -> None:
    """Filter this thread's calls and those of its children, for good. Needs no_new_privs."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code))
    syscall("seccomp", _SET_MODE_FILTER, 0, ctypes.create_string_buffer(program))


def is_known() -> bool:
    """True on machines that the filter can be written for."""
    return MACHINE in _AUDIT


def is_supported() -> bool:
    """True when the kernel filters system calls."""
    try:
        syscall("seccomp", _GET_ACTION, 0, ctypes.byref(ctypes.c_uint32(KILL)))
    except OSError:
        return False
    return True
