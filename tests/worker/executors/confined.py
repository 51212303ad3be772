"""Handlers that may do next to nothing: the fork server of the tests imports them from here."""

import ctypes
import os
import time
from pathlib import Path

from penstock import JobContext, Penstock, Permissions

app = Penstock("redis://:secret@127.0.0.1:1/0")
box = app.queue("box", permissions=Permissions(), max_attempts=1)
FORKED = "box-forked"
_calls = 0


def marked(name: str) -> list[int]:
    """The processes that carry that name as an argument of theirs."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and name.encode() in (folder / "comm").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@box.task(name="compute")
def box_compute(ctx: JobContext, number: int) -> int:
    ctx.progress("begun")
    return number * 2


@box.task(name="read")
def box_read(path: str) -> str:
    return Path(path).read_text()


def count() -> int:
    global _calls
    _calls += 1
    return _calls


box.task(name="count")(count)
box.task(name="count_once", permissions=Permissions(cpu_seconds=5))(count)


@box.task(name="crash")
def box_crash() -> None:
    print("last words", flush=True)
    ctypes.string_at(0)


@box.task(name="forks", timeout=1)
def box_forks() -> None:
    # PR_SET_NAME: what `marked` looks for.
    ctypes.CDLL(None).prctl(15, FORKED.encode(), 0, 0, 0)
    for _ in range(3):
        if not os.fork():
            os.setsid()
            os.fork()
    time.sleep(60)


@box.task(name="spawns")
def box_spawns(ctx: JobContext) -> None:
    ctx.blocking.spawn(box_compute.call(1))


@box.task(name="address")
def box_address() -> str | None:
    return app.url


@box.task(name="cat", program=["cat", "/etc/passwd"], permissions=Permissions(run=["cat"]))
def box_cat() -> None: ...
