"""The process that stays outside: it passes signals on, serves, and ends the way the one inside ended."""

import ctypes
import os
import resource
import select
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from penstock.sandbox.linux import (
    PR_GET_CHILD_SUBREAPER,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    prctl,
)

PASSED_ON: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
END: Final[int] = getattr(signal, "SIGRTMIN", signal.SIGUSR2)
"""Tells a keeper to kill its whole tree; also sent by the kernel when the keeper's parent dies."""
_HEARD: Final = frozenset({*PASSED_ON, END, signal.SIGCHLD})


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The number arrives through the wake-up descriptor."""


class Keeper:
    """Made before the fork; then `keep` in the caller and `begin` in the child.

    Signals wait from here on, until either is called: none is lost, and the child's handlers stay untouched.
    """

    def __init__(self) -> None:
        self._blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        self._was_reaper = is_reaper()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, END)

    def begin(self) -> None:
        """In the child, or when there will be none: as it was before."""
        prctl(PR_SET_CHILD_SUBREAPER, int(self._was_reaper))
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked_before)

    def keep(
        self,
        child: int,
        *,
        told: Callable[[int], int] = int,
        serve: Mapping[int, Callable[[], bool]] | None = None,
        keep: Collection[int] = (),
        finish: Callable[[], None] | None = None,
    ) -> NoReturn:
        """Stay until the child and all its descendants have ended, then end like the child.

        `told` turns the child's wait status into the one to end with. `serve` has descriptors that are
        watched, and what to do when one is ready: a False answer ends its watching. Of the others only those
        in `keep` stay open. `finish` is called last.
        """
        serving = serve or {}
        close_others({*serving, *keep}, has_standard=False)
        noticed, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for each in _HEARD:
            signal.signal(each, _noted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        poll = select.poll()
        for descriptor in (noticed, *serving):
            poll.register(descriptor, select.POLLIN)
        # It may have ended before anyone listened.
        status = _reaped(child)
        while status is None:
            for descriptor, _ in poll.poll():
                if descriptor == noticed:
                    status = _signalled(child, noticed)
                elif not serving[descriptor]():
                    poll.unregister(descriptor)
        end_all()
        if finish:
            finish()
        end_like(told(status))


def is_reaper() -> bool:
    """Does this process become the parent of its descendants' orphans?"""
    answer = ctypes.c_int()
    prctl(PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer))
    return bool(answer.value)


def _signalled(child: int, noticed: int) -> int | None:
    with suppress(BlockingIOError):
        for number in os.read(noticed, 512):
            if number != signal.SIGCHLD:
                os.kill(child, signal.SIGKILL if number == END else number)
    return _reaped(child)


def _reaped(child: int) -> int | None:
    """The child's wait status, once it has ended; orphans that have are reaped on the way."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return status
        if pid == 0:
            return None


def end_all() -> None:
    """Kill every descendant of this process, which has to be their reaper, and wait for the last one.

    They are stopped first, until no new one is found: what is stopped cannot fork ahead of the killing.
    """
    while _has_children():
        stopped: set[int] = set()
        while found := _descendants() - stopped:
            for pid in found:
                _send(pid, signal.SIGSTOP)
            stopped |= found
        for pid in stopped:
            _send(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _has_children() -> bool:
    with suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
    return False


def end_like(status: int) -> NoReturn:
    """End this process with a wait status of another one."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):
            # SIGKILL has no handler to take back.
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def close_others(keep: Collection[int], *, has_standard: bool = True) -> None:
    """Close every descriptor but these and the first three; those lead nowhere unless `has_standard`."""
    if not has_standard:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in {0, 1, 2}.difference(keep):
            os.dup2(nowhere, number)
    start = 3
    for number in (*sorted(each for each in keep if each >= 3), _most_descriptors()):
        os.closerange(start, number)
        start = number + 1


def _most_descriptors() -> int:
    # A limit that was lowered leaves descriptors above it open.
    with suppress(OSError):
        return max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1
    return 1 << 20


def _descendants() -> set[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    ahead = [os.getpid()]
    while ahead:
        children = parents.get(ahead.pop(), [])
        found.update(children)
        ahead += children
    return found


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
