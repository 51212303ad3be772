"""No process survives its keeper, and a keeper ends the way its child ended."""

import faulthandler
import os
import signal
from pathlib import Path

import pytest

from penstock.sandbox import linux, tree
from penstock.sandbox.confine import prepare
from penstock.sandbox.keeper import END
from penstock.sandbox.permissions import Permissions
from penstock.sandbox.plan import Plan
from tests.sandbox.line import Enter, Line, daemonize, ended, haunt, rest, without_namespaces


@pytest.fixture(scope="module")
def plan() -> Plan:
    """What confines a process that may touch nothing."""
    return prepare(Permissions(processes=32))


@pytest.fixture(params=["namespaces", "no namespaces"])
def enter(request: pytest.FixtureRequest, plan: Plan) -> Enter:
    """Goes on confined, in a tree of its own; the descriptor stays open."""
    if request.param == "no namespaces":
        plan = without_namespaces(plan)
    elif not plan.has_namespaces:
        pytest.skip("this user cannot have namespaces")
    return lambda say: plan.apply([say])


@pytest.mark.parametrize("code", [0, 3, 255])
def test_a_keeper_ends_with_its_childs_code(line: Line, enter: Enter, code: int) -> None:
    """Whoever waits for it sees what happened."""
    assert ended(line.start(enter, lambda _: os._exit(code))) == code


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGUSR1]
)
def test_a_keeper_ends_by_its_childs_signal(line: Line, enter: Enter, number: int) -> None:
    """A handler that kills itself looks the same from outside as without a keeper."""

    def die(_: int) -> None:
        faulthandler.disable()
        os.kill(os.getpid(), number)
        rest()

    assert ended(line.start(enter, die)) == -number


def test_daemons_die_with_the_tree(line: Line, enter: Enter) -> None:
    """Those that a handler left behind too."""

    def leave(say: int) -> None:
        for _ in range(3):
            daemonize(say)
        rest()

    pid = line.start(enter, leave)
    said = b""
    while len(said) < 3:
        said += line.read()
    os.kill(pid, END)
    assert ended(pid) == -signal.SIGKILL
    assert line.read() == b""


def test_daemons_die_when_the_child_ends(line: Line, enter: Enter) -> None:
    """A tree ends with the process that it began with."""

    def leave(say: int) -> None:
        daemonize(say)
        os._exit(5)

    assert ended(line.start(enter, leave)) == 5
    assert line.read().strip(b"d") == b""
    assert line.read() == b""


def test_a_tree_that_forks_all_the_time_dies(line: Line, enter: Enter) -> None:
    """However fast it is."""

    def fork(say: int) -> None:
        os.write(say, b"f")
        for depth in range(5):
            if os.fork() and depth % 2:
                os._exit(0)
        while True:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)

    pid = line.start(enter, fork)
    assert line.read() == b"f"
    os.kill(pid, END)
    ended(pid)
    assert line.read() == b""


def test_a_signal_is_passed_on(line: Line, enter: Enter) -> None:
    """SIGTERM reaches the handler's process, which may end well."""

    def wait(say: int) -> None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(42))
        os.write(say, b"r")
        rest()

    pid = line.start(enter, wait)
    assert line.read() == b"r"
    os.kill(pid, signal.SIGTERM)
    assert ended(pid) == 42


def test_a_tree_dies_with_the_parent_of_its_keeper(line: Line, enter: Enter) -> None:
    """A worker that is killed leaves nothing behind."""
    middle = os.fork()
    if middle == 0:
        line.start(enter, haunt)
        os.close(line.hear)
        rest()
    os.close(line.say)
    assert line.read() in (b"r", b"rd")
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    while line.read():
        pass


def test_a_sandbox_dies_even_if_its_keeper_is_killed(line: Line, plan: Plan) -> None:
    """Where there are namespaces, the kernel sees to it."""
    if not plan.has_namespaces:
        pytest.skip("this user cannot have namespaces")
    pid = line.start(lambda say: plan.apply([say]), haunt)
    assert line.read() in (b"r", b"rd")
    os.kill(pid, signal.SIGKILL)
    ended(pid)
    while line.read():
        pass


def test_output_to_a_file_goes_through_the_keeper(plan: Plan, tmp_path: Path) -> None:
    """What is printed arrives, and the file cannot be cut short."""
    path = tmp_path / "log"
    path.write_text("before\n")
    pid = os.fork()
    if pid == 0:
        try:
            log = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            plan.apply()
            os.write(1, b"out\n")
            try:
                os.ftruncate(1, 0)
            except OSError:
                os.write(2, b"refused\n")
            os._exit(0)
        finally:
            os._exit(99)
    assert ended(pid) == 0
    assert sorted(path.read_text().split()) == ["before", "out", "refused"]


def test_a_reaper_of_orphans_stays_one(line: Line, enter: Enter) -> None:
    """What the caller was, the new process is."""
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    try:
        pid = line.start(enter, lambda say: os.write(say, str(tree.adopts_orphans()).encode()))
    finally:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 0)
    assert line.read() == b"True"
    ended(pid)
