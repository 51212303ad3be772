"""The fork server: imports the app once, then forks a child for each that the worker asks for.

Started by exec, so that it has neither threads nor sockets of the worker: `python -m … server <descriptor>`.
It ends, with all its children, when the worker closes the other end of that socket or is no more.
"""

import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.core.errors import PenstockError
from penstock.sandbox import tree
from penstock.sandbox.cgroups import Cgroup, Group
from penstock.sandbox.confine import Plan
from penstock.tasks.task import Task
from penstock.telemetry import logs
from penstock.worker.executors.process.child import serve
from penstock.worker.executors.process.load import App, check_tasks, load, plans
from penstock.worker.executors.process.wire import (
    CONTROL_LIMIT,
    Broken,
    Exited,
    Frames,
    Message,
    Ready,
    Signal,
    Spawn,
    Start,
    ToServer,
    Unspawned,
    frame,
)
from penstock.worker.executors.subprocess.program import become

MAX_FDS: Final = 4
_PENSTOCK: Final = str(Path(__file__).parents[3])
_DECODER: Final = msgspec.json.Decoder(ToServer)


class Server:
    """One thread, one loop: what the worker wants, and who has ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._frames = Frames(CONTROL_LIMIT)
        self._fds: list[int] = []
        self._pids: dict[int, int] = {}
        """Of each number the pid; a pid is not used again before its process was reaped here."""
        self._numbers: dict[int, int] = {}
        self._helpers: set[int] = set()
        """Processes that importing the app started."""
        self._plans: dict[str, Plan] = {}
        self._cgroup: Cgroup | None = None
        self._app: App | None = None

    def serve(self) -> None:
        """Work until the worker is gone."""
        woken, waker = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        # A process manager may signal the whole group: the worker says when this one ends.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tree.adopt_orphans()
        while True:
            ready, _, _ = select.select([self._control.fileno(), woken], [], [])
            if woken in ready:
                with suppress(BlockingIOError):
                    os.read(woken, 4096)
                self._reap()
            if self._control.fileno() in ready and not self._take_in():
                break
        signal.set_wakeup_fd(-1)
        self._end_all()

    def _take_in(self) -> bool:
        """Do what the worker wants; False when it is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 1 << 16, MAX_FDS)
        except ConnectionError:
            return False
        for fd in fds:
            os.set_inheritable(fd, False)
        self._fds += fds
        for body in self._frames.feed(data):
            self._obey(_DECODER.decode(body))
        return bool(data)

    def _obey(self, message: ToServer) -> None:
        match message:
            case Start():
                self._start(message)
            case Spawn():
                fds, self._fds = self._fds, []
                try:
                    self._spawn(message, fds)
                except Exception as error:  # noqa: BLE001 (the app's and the kernel's: told, and life goes on)
                    self._tell(Unspawned(message.number, _headline(error)))
                finally:
                    for fd in fds:
                        os.close(fd)
            case Signal(number, sent):
                if number in self._pids:
                    with suppress(ProcessLookupError):
                        os.kill(self._pids[number], sent)

    def _start(self, message: Start) -> None:
        if message.log_level is not None:
            logs.configure(json=message.log_json, level=message.log_level)
        try:
            app = load(message)
        except BaseException as error:  # noqa: BLE001 (importing runs the user's code: also an exit is told)
            self._tell(Broken(f"the app cannot be imported: {_import_error(error)}"))
            return
        try:
            check_tasks(app, message)
            self._plans = plans(app.registry)
        except PenstockError as error:
            self._tell(Broken(str(error)))
            return
        self._app = app
        self._cgroup = next((plan.cgroup for plan in self._plans.values()), None)
        self._helpers = set(tree.children())
        gc.collect()
        # What is there now is shared with the children as long as nobody touches it.
        gc.freeze()
        for_one_job = [name for name, plan in self._plans.items() if plan.is_for_one_job]
        self._tell(Ready(tree.threads(), for_one_job))

    def _spawn(self, message: Spawn, fds: Sequence[int]) -> None:
        if self._app is None:
            raise PenstockError("no app was imported")
        task = self._app.registry.get(message.task)
        if task is None:
            raise PenstockError(f"no task is named {message.task!r} in the app that the fork server imported")
        plan = self._plans.get(task.name)
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            self._in_child(parent, fds, _work(self._app, task, plan))
        self._pids[message.number] = pid
        self._numbers[pid] = message.number

    def _in_child(self, parent: int, fds: Sequence[int], work: Callable[[Sequence[int]], None]) -> None:
        """Never returns: the stack below is the server's."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for each in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(each, signal.SIG_DFL)
            self._control.close()
            os.setsid()
            tree.die_with(parent)
            tree.adopt_orphans()
            work(fds)
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001 (a forked process must not come back)
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        ended: list[tuple[int, int]] = []
        groups: list[Group] = []
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                self._helpers.discard(pid)
                number = self._numbers.pop(pid, None)
                if number is not None:
                    del self._pids[number]
                    ended.append((number, status))
                    tree.kill_group(pid)
                    if self._cgroup is not None:
                        groups.append(self._cgroup.of(pid))
        if ended:
            # What a keeper left that was killed itself.
            for group in groups:
                group.kill()
            # Children take in their own orphans; what comes to this process has lost its child.
            left = tree.end_strays(self._numbers.keys() | self._helpers)
            for group in groups:
                group.remove()
            for number, status in ended:
                self._tell(Exited(number, status, left))

    def _end_all(self) -> None:
        for pid in self._numbers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            tree.kill_group(pid)
        tree.end_strays()

    def _tell(self, message: Message) -> None:
        # A worker that is gone has nobody left to tell; the next read says so.
        with suppress(OSError):
            self._control.sendall(frame(message))


def _work(app: App, task: Task[..., ..., Any], plan: Plan | None) -> Callable[[Sequence[int]], None]:
    def work(fds: Sequence[int]) -> None:
        if task.execution.program is None:
            serve(app, task, fds, plan)
        else:
            become(task.execution.program, fds, plan)

    return work


def _import_error(error: BaseException) -> str:
    """In one line, with the place in the app's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(("<frozen", _PENSTOCK))]
    return f"{_headline(error)} ({own[-1].filename}, line {own[-1].lineno})" if own else _headline(error)


def _headline(error: BaseException) -> str:
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__qualname__}: {error}"


def main() -> None:
    """Serve on the descriptor named on the command line."""
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
