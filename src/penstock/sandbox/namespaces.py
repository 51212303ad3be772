"""A process in namespaces of its own: its own pids, its own root, no network, no one else's shared memory."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, NoReturn

import msgspec

from penstock.core.errors import ConfigError
from penstock.sandbox import linux
from penstock.sandbox.keeper import PASSED_ON, close_others
from penstock.sandbox.root import Root

FLAGS: Final = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
)
_MOST: Final = 4096


class Identity(msgspec.Struct, frozen=True):
    """The user and group that a confined process is, on the host and inside."""

    uid: int
    gid: int

    def assume(self) -> None:
        """Become this user and group for good. The caller needs the right to do so."""
        os.setgroups([])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


class Inside(NamedTuple):
    """The first process of the new namespaces, and the pipe on which it reports how the handler ended."""

    init: int
    line: socket.socket

    def told(self, _status: int) -> int:
        """The wait status of the handler's process; that of a killed process if none was reported."""
        self.line.setblocking(False)
        with suppress(OSError, ValueError):
            return int(self.line.recv(_MOST))
        return signal.SIGKILL


def fork(identity: Identity, root: Root, begin: Callable[[], None]) -> Inside | None:
    """None in the new process, which is the namespaces' second; in the caller, the first.

    `begin` is called in the new process. Until then signals wait, also in the first: where nobody listens,
    it would ignore them.

    Three forks: the first leaves the caller's namespaces, its child is the new ones' first process, which
    reaps and forks the handler's. The one in between ends, so that the caller, a reaper of orphans, becomes
    the parent of the first. When that one ends, the kernel kills all that is left in the namespaces.
    """
    line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stager = os.fork()
    if stager == 0:
        line.close()
        _reported(theirs, lambda: _leave(identity, root, theirs))
        begin()
        return None
    theirs.close()
    try:
        _expect(line)
        _map(stager, identity)
        line.send(b"mapped")
        init = int(_expect(line))
        os.waitpid(stager, 0)
        line.send(b"adopted")
        _expect(line)
    except BaseException:
        line.close()
        with suppress(ChildProcessError):
            os.waitpid(stager, 0)
        raise
    return Inside(init, line)


def _leave(identity: Identity, root: Root, line: socket.socket) -> None:
    is_another = identity.uid != os.geteuid()
    linux.unshare(FLAGS)
    line.send(b"unshared")
    _expect(line)
    init = os.fork()
    if init:
        line.send(str(init).encode())
        os._exit(0)
    _expect(line)
    sources = root.collect()
    if is_another:
        identity.assume()
    root.build(sources)
    linux.drop_capabilities()
    # After the last change of user: that would reset the flag.
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    line.send(b"built")
    handler = os.fork()
    if handler:
        _mind(handler, line)
    line.close()


def _mind(handler: int, line: socket.socket) -> NoReturn:
    """Pass signals on and reap orphans until the handler's process ends."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # No process inside may read this one's memory: it is a copy of the parent's.
    linux.prctl(linux.PR_SET_DUMPABLE, 0)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(handler, number)

    for each in PASSED_ON:
        signal.signal(each, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    close_others({line.fileno()}, has_standard=False)
    pid, status = 0, 0
    while pid != handler:
        pid, status = os.waitpid(-1, 0)
    with suppress(OSError):
        line.send(str(status).encode())
    os._exit(0)


def _map(pid: int, identity: Identity) -> None:
    folder = Path("/proc", str(pid))
    if os.geteuid():
        (folder / "setgroups").write_text("deny")
    (folder / "gid_map").write_text(f"{identity.gid} {identity.gid} 1")
    (folder / "uid_map").write_text(f"{identity.uid} {identity.uid} 1")


def _expect(line: socket.socket) -> bytes:
    said = line.recv(_MOST)
    if not said or said.startswith(b"!"):
        raise ConfigError(f"the sandbox could not be set up: {said[1:].decode() or 'its process was killed'}")
    return said


def _reported(line: socket.socket, step: Callable[[], None]) -> None:
    """Call the function; report an error to the parent instead of raising it."""
    try:
        step()
    except BaseException as error:  # noqa: BLE001 (whatever it is, this process must go no further)
        with suppress(OSError):
            line.send(f"!{error}".encode()[:_MOST])
        os._exit(1)
