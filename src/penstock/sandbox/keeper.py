"""The process that stays outside: it passes signals on, serves, and ends the way the one inside ended."""

import os
import resource
import select
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from penstock.sandbox import tree
from penstock.sandbox.linux import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl

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
_RECEIVED: Final = frozenset({*PASSED_ON, END, signal.SIGCHLD})


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the number of the signal arrives through the wake-up descriptor."""


class Keeper:
    """Made before the fork; then `keep` in the caller and `begin` in the child.

    Signals wait from here on, until either is called: none is lost, and the child's handlers stay untouched.
    """

    def __init__(self) -> None:
        self._blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, _RECEIVED)
        self._adopted = tree.adopts_orphans()
        tree.adopt_orphans()
        prctl(PR_SET_PDEATHSIG, END)

    def begin(self) -> None:
        """In the child, or when there will be none: as it was before."""
        prctl(PR_SET_CHILD_SUBREAPER, int(self._adopted))
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked_before)

    def keep(
        self,
        child: int,
        *,
        told: Callable[[int], int] = int,
        serve: Mapping[int, Callable[[], bool]] | None = None,
        keep: Collection[int] = (),
        end: Iterable[Callable[[], None]] = (),
        finish: Iterable[Callable[[], None]] = (),
    ) -> NoReturn:
        """Stay until the child and all its descendants have ended, then end like the child.

        `told` turns the child's wait status into the one to end with. `serve` has descriptors that are
        watched, and what to do when one is ready: a False answer ends its watching. Of the others only those
        in `keep` stay open. `end` is called before the descendants are ended, `finish` after.
        """
        serving = serve or {}
        close_others({*serving, *keep}, has_standard=False)
        noticed, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for each in _RECEIVED:
            signal.signal(each, _noted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _RECEIVED)
        poll = select.poll()
        for descriptor in (noticed, *serving):
            poll.register(descriptor, select.POLLIN)
        # The child may have ended before its signal was handled.
        status = _reaped(child)
        while status is None:
            for descriptor, _ in poll.poll():
                if descriptor == noticed:
                    status = _signalled(child, noticed)
                elif not serving[descriptor]():
                    poll.unregister(descriptor)
        for step in end:
            step()
        while tree.end_strays():
            pass
        for step in finish:
            step()
        end_like(told(status))


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
