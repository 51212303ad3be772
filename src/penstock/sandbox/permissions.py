"""What a task may touch: files, addresses, variables, programs, and how much of each."""

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from penstock.core.errors import OptionError

LEAST_MEMORY: Final = 16 << 20
MOST_MEMORY: Final = 1 << 46
MOST_SECONDS: Final = 24 * 3600
MOST_PROCESSES: Final = 4096

_ENV: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
_ADDRESS: Final = re.compile(
    rf"(?P<host>\*|(?:\*\.)?{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\]):(?P<port>\*|[0-9]{{1,5}})"
)


class Address(msgspec.Struct, frozen=True):
    """An entry of `net`: a host in lower letters, `*.suffix` or `*`, and a port or None for any."""

    host: str
    port: int | None


class Permissions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a task may touch. What is not named here is refused by the kernel.

    The interpreter, its libraries and the app's code are always readable.
    """

    read: Sequence[str] = ()
    """Absolute paths of files, or of folders with all that is in them."""
    write: Sequence[str] = ()
    """As `read`; these may be read, changed, made and deleted as well."""
    net: Literal[False] | Sequence[str] = False
    """`host:port`, `*.example.org:443`, `*:443` (any public address) or `host:*`. Only TCP."""
    env: Sequence[str] = ()
    """Names of variables that the task sees."""
    run: Sequence[str] = ()
    """Programs that it may start: absolute paths, or names found on the worker's PATH."""
    memory: int | None = None
    """Bytes that each of its processes may take beyond what it begins with."""
    cpu_seconds: int | None = None
    """CPU time of each of its processes. A process that has used it up is killed."""
    processes: int = 64
    """Processes and threads at once, the one of the handler included."""
    file_size: int | None = None
    """Bytes in a file that it writes."""

    def __post_init__(self) -> None:
        for field in ("read", "write"):
            self._take(field, _paths(field, getattr(self, field)))
        self._take("net", _net(self.net))
        self._take("env", _names("env", self.env))
        self._take("run", _programs(self.run))
        _bounded("memory", self.memory, LEAST_MEMORY, MOST_MEMORY)
        _bounded("cpu_seconds", self.cpu_seconds, 1, MOST_SECONDS)
        _bounded("file_size", self.file_size, 0, MOST_MEMORY)
        if self.processes is None:
            raise OptionError("permissions.processes", None, f"a whole number from 1 to {MOST_PROCESSES}")
        _bounded("processes", self.processes, 1, MOST_PROCESSES)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """`net`, taken apart."""
        return tuple(_address(each) for each in self.net or ())

    def _take(self, field: str, value: object) -> None:
        # Tuples, so that equal permissions have equal hashes.
        msgspec.structs.force_setattr(self, field, value)


def _strings(field: str, found: object, wanted: str) -> tuple[str, ...]:
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        strings = tuple(each for each in found if isinstance(each, str))
        if len(strings) == len(found):
            return strings
    raise OptionError(f"permissions.{field}", found, wanted)


def _paths(field: str, found: object) -> tuple[str, ...]:
    paths = _strings(field, found, "a list of absolute paths")
    for path in paths:
        if not path.startswith("/") or "\0" in path:
            raise OptionError(f"permissions.{field}", path, "an absolute path")
        if ".." in path.split("/"):
            raise OptionError(f"permissions.{field}", path, "a path without ..")
    return paths


def _names(field: str, found: object) -> tuple[str, ...]:
    names = _strings(field, found, "a list of names of variables")
    for name in names:
        if not _ENV.fullmatch(name):
            raise OptionError(f"permissions.{field}", name, "the name of a variable")
    return names


def _programs(found: object) -> tuple[str, ...]:
    programs = _strings("run", found, "a list of programs")
    for program in programs:
        if not program or "\0" in program or ("/" in program and not program.startswith("/")):
            raise OptionError("permissions.run", program, "an absolute path, or a name without a slash")
    return programs


def _net(found: object) -> Literal[False] | tuple[str, ...]:
    wanted = 'False, or a list such as ["api.example.org:443"]'
    if found is False:
        return False
    entries = _strings("net", found, wanted)
    for entry in entries:
        _address(entry)
    return entries or False


def _address(entry: str) -> Address:
    match = _ADDRESS.fullmatch(entry)
    port = match["port"] if match else ""
    if match is None or (port != "*" and not 1 <= int(port) <= 65535):
        raise OptionError(
            "permissions.net", entry, "host:port, such as api.example.org:443, *:443 or [::1]:80"
        )
    host = match["host"].lower().strip("[]")
    return Address(host, None if port == "*" else int(port))


def _bounded(field: str, found: object, low: int, high: int) -> None:
    if found is None:
        return
    if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
        raise OptionError(f"permissions.{field}", found, f"a whole number from {low} to {high}")
