"""Tries a plan in a process of its own: the only way to know what a kernel enforces."""

import errno
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from penstock.core.errors import ConfigError
from penstock.sandbox import namespaces
from penstock.sandbox.keeper import Keeper
from penstock.sandbox.root import Mount, Root

if TYPE_CHECKING:
    from penstock.sandbox.plan import Plan

_SECONDS: Final = 60.0
_NEEDED: Final = ("LD_LIBRARY_PATH",)
_START: Final = "import sys; sys.path[:] = {path!r}; from penstock.sandbox.trial import main; main()"


def attempt(plan: "Plan | None") -> str | None:
    """Confine a process by the plan (None: only by namespaces); what went wrong, or None.

    A new interpreter rather than a fork: the caller may have threads.
    """
    path = [str(Path(each).absolute()) for each in sys.path]
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter)
            [sys.executable, "-I", "-S", "-c", _START.format(path=path)],
            input=msgspec.json.encode(plan),
            capture_output=True,
            timeout=_SECONDS,
            env={name: os.environ[name] for name in _NEEDED if name in os.environ},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"the sandbox could not be tried out: {error}") from error
    said = done.stdout.decode(errors="replace").strip()
    if done.returncode == 0 and said == "fine":
        return None
    return said or done.stderr.decode(errors="replace").strip()[-300:] or f"exit code {done.returncode}"


def main() -> NoReturn:
    """In the new interpreter: confine, look around, and say `fine` or what is wrong."""
    from penstock.sandbox.plan import Plan

    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan | None)
    try:
        if plan is None:
            _only_namespaces()
        else:
            plan.apply()
            _look_around(plan)
    except (OSError, ConfigError) as error:
        _say(str(error))
    _say("fine")


def _only_namespaces() -> None:
    from penstock.sandbox.available import identity

    keeper = Keeper()
    inside = namespaces.fork(identity(), Root((Mount("/dev/null", is_device=True),)), keeper.begin)
    if inside:
        keeper.keep(inside.init, told=inside.told, keep=[1, 2, inside.line.fileno()])


def _look_around(plan: "Plan") -> None:
    """Check that permitted files can be read and others are refused."""
    for path in (*plan.permissions.read, *plan.permissions.write, *(rule.path for rule in plan.rules)):
        # Python works without bytecode files that it cannot read.
        if not path.endswith("/__pycache__"):
            _open(path)
    for path in plan.permissions.write:
        if not os.access(path, os.W_OK):
            raise ConfigError(f"{path} cannot be written by {_who()}")
    with suppress(PermissionError):
        socket.socket().close()
        if plan.has_filter and not plan.permissions.net:
            raise ConfigError("a socket could be made in spite of the filter")
    if plan.landlock or plan.has_namespaces:
        try:
            os.scandir("/").close()
        except PermissionError:
            return
        if not plan.has_namespaces and "/" not in (*plan.permissions.read, *plan.permissions.write):
            raise ConfigError("the root could be listed in spite of Landlock")


def _open(path: str) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise ConfigError(f"{path} cannot be read by {_who()}: {error.strerror}") from error


def _who() -> str:
    return f"uid {os.getuid()}"


def _say(text: str) -> NoReturn:
    os.write(1, text.encode())
    os._exit(0 if text == "fine" else 1)
