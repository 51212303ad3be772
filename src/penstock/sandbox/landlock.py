"""Landlock: which files, TCP ports and processes outside can be reached."""

import ctypes
import os
import stat
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.core.errors import ConfigError
from penstock.sandbox.linux import hold, syscall

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
MAKE_CHAR: Final = 1 << 6
MAKE_DIR: Final = 1 << 7
MAKE_REG: Final = 1 << 8
MAKE_SOCK: Final = 1 << 9
MAKE_FIFO: Final = 1 << 10
MAKE_BLOCK: Final = 1 << 11
MAKE_SYM: Final = 1 << 12
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15

OLDEST: Final = 3
"""The first version that sees a file being cut short."""
SCOPED: Final = 6
"""The first version that sees signals and abstract sockets."""
READ: Final = READ_FILE | READ_DIR
WRITE: Final = (
    READ
    | WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
    | TRUNCATE
)
_OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_BITS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""Rights that a version knows; 16 since the fifth."""
_CREATE_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_BIND_AND_CONNECT: Final = 0b11
_SOCKETS_AND_SIGNALS: Final = 0b11


class Rule(NamedTuple):
    """A path, and the access allowed to it and to everything below it."""

    path: str
    rights: int


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The Landlock version of this kernel; 0 without Landlock."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _CREATE_VERSION)
    except OSError:
        return 0


def restrict(rules: Iterable[Rule], spoken: int) -> None:
    """Restrict this thread and its children to what the rules allow. Needs no_new_privs.

    Since version 4 no TCP port either, since 6 no abstract socket and no signal to a process outside.
    """
    handled = (1 << _BITS.get(spoken, 16)) - 1
    attributes = _Ruleset(
        handled, _BIND_AND_CONNECT if spoken >= 4 else 0, _SOCKETS_AND_SIGNALS if spoken >= SCOPED else 0
    )
    size = 8 if spoken < 4 else 16 if spoken < 6 else 24
    ruleset = syscall("landlock_create_ruleset", ctypes.byref(attributes), size, 0)
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _add(ruleset: int, rule: Rule, handled: int) -> None:
    try:
        descriptor = hold(rule.path)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise ConfigError(f"{rule.path} cannot be reached by uid {os.getuid()}: {why}") from error
    try:
        rights = rule.rights & handled
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        if rights:
            beneath = _Beneath(rights, descriptor)
            syscall("landlock_add_rule", ruleset, _PATH_BENEATH, ctypes.byref(beneath), 0)
    finally:
        os.close(descriptor)
