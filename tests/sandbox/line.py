"""A line to a tree of processes, by which it is known when the last of them is gone."""

import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final, NoReturn

from msgspec.structs import replace

from penstock.sandbox import linux, tree
from penstock.sandbox.namespaces import Identity
from penstock.sandbox.plan import Plan

PATIENCE: Final = 20.0
Enter = Callable[[int], None]


class Line:
    """A pipe whose other end only the processes of a tree hold: it ends with the last of them."""

    def __init__(self) -> None:
        self.hear, self.say = os.pipe()

    def start(self, enter: Enter, act: Callable[[int], object]) -> int:
        """Fork a process that enters a tree and acts; its pid."""
        is_one = tree.adopts_orphans()
        pid = os.fork()
        if pid == 0:
            # It is not passed on by a fork.
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, int(is_one))
            self._act(enter, act)
        os.close(self.say)
        return pid

    def _act(self, enter: Enter, act: Callable[[int], object]) -> NoReturn:
        try:
            enter(self.say)
            act(self.say)
        finally:
            os._exit(99)

    def read(self) -> bytes:
        """What is said next; empty when none is left who could say something."""
        assert select.select([self.hear], [], [], PATIENCE)[0], "nothing was said, and some still could"
        return os.read(self.hear, 100)

    def hears(self, count: int) -> bytes:
        """As much as that of what is said."""
        said = b""
        while len(said) < count:
            more = self.read()
            assert more, f"only {said!r} was said"
            said += more
        return said


def without_namespaces(plan: Plan) -> Plan:
    """The plan as where there are none; as this user, for nobody may not be able to read the interpreter."""
    return replace(plan, has_namespaces=False, identity=Identity(os.geteuid(), os.getegid()))


def rest() -> NoReturn:
    """Sleep for longer than any test."""
    while True:
        time.sleep(1000)


def daemonize(say: int) -> None:
    """Leave a daemon behind: another session, and a parent that is gone."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.write(say, b"d")
            rest()
        os._exit(0)
    os.waitpid(pid, 0)


def haunt(say: int) -> None:
    """Leave a daemon behind, and stay."""
    os.write(say, b"r")
    daemonize(say)
    rest()


def ended(pid: int) -> int:
    """The exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
