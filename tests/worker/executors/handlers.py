"""Handlers for processes of their own: the fork server of the tests imports them from here."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from penstock import Cancel, Fail, JobContext, Penstock, Retry, Snooze, SoftTimeoutError
from tests.kit.waiting import block_until

app = Penstock("memory://")
work = app.queue("work", executor="process", max_attempts=1)
_kept: list[bytes] = []
SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]


@work.task
def add(a: int, b: int) -> int:
    return a + b


@work.task
async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@work.task
def describe(ctx: JobContext) -> dict[str, Any]:
    names = (
        "id",
        "task",
        "queue",
        "tenant",
        "worker",
        "attempt",
        "max_attempts",
        "delivery",
        "drive",
        "fence",
    )
    return {name: getattr(ctx, name) for name in names} | {
        "priority": ctx.priority,
        "key": ctx.key,
        "enqueued_at": ctx.enqueued_at.timestamp(),
        "has_deadline": ctx.deadline > ctx.enqueued_at,
    }


@work.task
def report(ctx: JobContext, value: Any) -> None:
    ctx.progress("first")
    ctx.progress(value)


@work.task
def pid() -> int:
    return os.getpid()


work.task(name="pid_too")(os.getpid)


@work.task(recycle_jobs=2)
def pid_of_two() -> int:
    return os.getpid()


@work.task(recycle_bytes=16 << 20)
def pid_of_growing() -> int:
    _kept.append(b"x" * (24 << 20))
    return os.getpid()


@work.task
def steer(how: str) -> None:
    match how:
        case "retry":
            raise Retry(after=20, reason="busy")
        case "snooze":
            raise Snooze(30)
        case "fail":
            raise Fail("no such order")
        case "cancel":
            raise Cancel("not wanted")
        case "exit":
            sys.exit(3)
    raise LookupError(how)


@work.task
def stack(path: str) -> None:
    Path(path).touch()
    time.sleep(60)


@work.task
async def with_store() -> None:
    async with app:
        pass


@work.task
async def enqueueing() -> None:
    await add.enqueue(1, 2)


@work.task
def with_blocking() -> None:
    with app.blocking as queue:
        queue.enqueue(add, 1, 2)


@work.task
def return_nothing() -> int:
    return None  # type: ignore[return-value]


@work.task
def print_much(count: int) -> str:
    for number in range(count):
        print(f"line {number} {'x' * 1000}")
    return "done"


@work.task
def family(ctx: JobContext) -> list[Any]:
    return [child.result for child in ctx.blocking.children()]


@work.task
async def family_async(ctx: JobContext) -> list[Any]:
    return [child.result for child in await ctx.children()]


@work.task
def spawn(ctx: JobContext) -> list[str]:
    return [handle.id for handle in ctx.blocking.spawn(add.call(1, 2), add.call(3, 4))]


# How a process can end


@work.task
def die(how: str) -> None:
    print(f"last words before {how}", file=sys.stderr, flush=True)
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "exit":
            os._exit(7)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "half a frame":
            os.write(_wire(), b"\0\0\1\0{")
            os._exit(0)
        case "too long a frame":
            os.write(_wire(), b"\x7f\xff\xff\xff")
            time.sleep(60)
        case "not JSON":
            os.write(_wire(), b"\0\0\0\4}}}}")
            time.sleep(60)
        case "closed wire":
            os.close(_wire())
            time.sleep(60)
        case "another's end":
            body = b'{"type":"Done","number":99,"kind":"returned"}'
            os.write(_wire(), len(body).to_bytes(4, "big") + body)
            time.sleep(60)


@work.task
def daemon(path: str, then: str) -> None:
    """A process in a session of its own whose parent has ended: no group has it."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            Path(path).write_text(str(os.getpid()))
            time.sleep(300)
        os._exit(0)
    os.wait()
    block_until(lambda: Path(path).exists() and Path(path).read_text())
    if then == "die":
        os.kill(os.getpid(), signal.SIGSEGV)


@work.task
def helper(path: str) -> int:
    """Leaves a process behind."""
    Path(path).write_text(str(subprocess.Popen(SLEEPER).pid))
    return os.getpid()


@work.task
def helper_and_sleep(path: str) -> None:
    Path(path).write_text(str(subprocess.Popen(SLEEPER).pid))
    time.sleep(60)


# How a handler can be stopped


@work.task
def looks(ctx: JobContext, path: str) -> str:
    Path(path).touch()
    block_until(lambda: ctx.is_cancelled)
    return "stopped"


@work.task
async def waits(path: str) -> None:
    try:
        Path(path).touch()
        await asyncio.sleep(60)
    finally:
        Path(path).write_text("cleaned up")


@work.task
def sleeps(path: str) -> None:
    try:
        Path(path).touch()
        time.sleep(60)
    finally:
        Path(path).write_text("cleaned up")


@work.task
def until(path: str, end: str) -> str:
    Path(path).write_text(str(os.getpid()))
    block_until(lambda: Path(end).exists())
    return "finished"


@work.task
def deaf(path: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(path).touch()
    time.sleep(60)


@work.task(timeout=0.3)
def too_long() -> None:
    print("still at it", flush=True)
    time.sleep(60)


@work.task(soft_timeout=0.1)
def softens() -> str:
    try:
        time.sleep(60)
    except SoftTimeoutError:
        return "what was there"
    return "all"


@work.task(soft_timeout=0.1)
async def softens_async() -> str:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "what was there"
    return "all"


@work.task(soft_timeout=0.5)
def softens_once(resets: bool) -> str:
    if resets:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        return str(os.getpid())
    try:
        time.sleep(60)
    except SoftTimeoutError:
        return str(os.getpid())
    return "all"


@work.task(soft_timeout=0.1)
def too_soft() -> None:
    time.sleep(60)


@work.task(soft_timeout=0.1)
async def too_soft_async() -> None:
    await asyncio.sleep(60)


@work.task(timeout=60)
def hold_gil(seconds: int) -> str:
    # PyDLL keeps the lock of the interpreter while C code runs.
    ctypes.PyDLL(None).sleep(seconds)  # real time: no clock of ours is asked while the lock is held
    return "done"


def _wire() -> int:
    """The child's end of the wire: its only socket."""
    for fd in range(3, 100):
        try:
            if str(Path(f"/proc/self/fd/{fd}").readlink()).startswith("socket:"):
                return fd
        except OSError:
            continue
    raise LookupError("no wire")


# Where neither task nor queue says

plain = app.queue("plain")


@plain.task
def where() -> int:
    return os.getpid()


# Programs

programs = app.queue("programs", max_attempts=1)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


_TELL = "import json, sys, time, os, signal\njob = json.loads(sys.stdin.readline())\nargs = job['payload']\n"


@programs.task(
    program=python(
        _TELL + "print(json.dumps({'progress': 1}))\n"
        "print(json.dumps({'result': [args['value'], job['attempt'], job['task']]}))"
    )
)
def echo(value: Any) -> Any: ...


@programs.task(program=python("import json, sys; print(json.dumps({'result': json.load(sys.stdin)['id']}))"))
def read_all() -> Any: ...


@programs.task(program=python(_TELL + "print('it went wrong', file=sys.stderr); sys.exit(args['code'])"))
def exits(code: int) -> None: ...


@programs.task(
    program=python(_TELL + "print(json.dumps({args['word']: args['value']})); sys.exit(args['code'])")
)
def says(word: str, value: Any, code: int = 0) -> Any: ...


@programs.task(program=python("while True: print('x' * 65536, end='')"))
def floods() -> None: ...


@programs.task(program=python("while True: print('x' * 65536, file=__import__('sys').stderr)"), timeout=1)
def floods_errors() -> None: ...


@programs.task(program=["true"])
def says_nothing() -> int: ...  # type: ignore[empty-body]


@programs.task(program=python("print('Starting up ...')"))
def chats() -> None: ...


@app.queue("elsewhere", max_attempts=1).task(program=["/nowhere/to/be/found"])
def missing() -> None: ...


@programs.task(program=python(_TELL + "os.kill(os.getpid(), signal.SIGSEGV)"))
def crashes() -> None: ...


@programs.task(program=python(_TELL + "open(args['path'], 'w').close(); time.sleep(60)"))
def sleeps_long(path: str) -> None: ...


@programs.task(
    program=python(
        _TELL + "open(args['path'], 'w').close()\n"
        "if json.loads(sys.stdin.readline()) == {'stop': True}: open(args['path'], 'w').write('told')"
    ),
    listens=True,
)
def listens(path: str) -> None: ...


@programs.task(
    program=python(
        _TELL
        + "signal.signal(signal.SIGTERM, signal.SIG_IGN); open(args['path'], 'w').close(); time.sleep(60)"
    )
)
def deaf_program(path: str) -> None: ...


@programs.task(
    program=python(
        _TELL + "import subprocess\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(300)']\n"
        "child = subprocess.Popen(sleeper, start_new_session=True)\n"
        "open(args['path'], 'w').write(str(child.pid))"
    )
)
def leaves_child(path: str) -> None: ...


@programs.task(program=python(_TELL + "time.sleep(60)"), soft_timeout=0.3)
def soft_program() -> None: ...
