"""Handlers of every tier that make it hard for a worker to stop: `penstock worker` runs them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from penstock import Penstock

app = Penstock()
SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]


def begun(folder: str, name: str, pid: int | None = None) -> None:
    """Tell the test that the handler runs, and which process it started."""
    unfinished = Path(folder, f".{name}")
    unfinished.write_text(str(os.getpid() if pid is None else pid))
    unfinished.rename(Path(folder, name))


inline = app.queue("inline")


@inline.task(name="inline.ends")
async def inline_ends(folder: str) -> None:
    begun(folder, "ends")
    await asyncio.sleep(0.5)  # real time: the signal comes while it runs, and it ends in the drain


@inline.task(name="inline.ignores")
async def inline_ignores(folder: str) -> None:
    begun(folder, "ignores")
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


@inline.task(name="inline.blocks")
async def inline_blocks(folder: str) -> None:
    """Longer than a lease; nothing in its process could end it, and the worker waits for it."""
    begun(folder, "blocks")
    # After the others have begun.
    await asyncio.sleep(0.1)  # real time: the others begin meanwhile
    time.sleep(1.5)  # noqa: ASYNC251 # real time: it blocks the loop for longer than a lease


@inline.task(name="inline.spawns")
async def inline_spawns(folder: str) -> None:
    child = await asyncio.create_subprocess_exec(*SLEEPER)
    begun(folder, "spawns", child.pid)
    try:
        await child.wait()
    finally:
        child.kill()
        await child.wait()


held = app.queue("held")


@held.task(name="held.holds")
async def held_holds(folder: str) -> None:
    begun(folder, "holds")
    time.sleep(300)  # noqa: ASYNC251 (that is the point)


@held.task(name="held.waits")
async def held_waits(folder: str) -> None:
    begun(folder, "waits")
    await asyncio.sleep(300)


def ends(folder: str) -> None:
    begun(folder, "ends")
    time.sleep(0.5)  # real time: the signal comes while it runs, and it ends in the drain


def ignores(folder: str) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begun(folder, "ignores")
    time.sleep(60)


def blocks(folder: str) -> None:
    begun(folder, "blocks")
    blocked = threading.Lock()
    blocked.acquire()
    blocked.acquire(timeout=60)


def spawns(folder: str) -> None:
    child = subprocess.Popen(SLEEPER, start_new_session=True)
    begun(folder, "spawns", child.pid)
    time.sleep(60)


for tier in ("thread", "process"):
    queue = app.queue(tier, executor="inline" if tier == "thread" else "process")
    for function in (ends, ignores, blocks, spawns):
        queue.task(name=f"{tier}.{function.__name__}")(function)

_BEGIN = """
import json, os, signal, subprocess, sys, threading, time
folder = json.loads(sys.stdin.readline())["payload"]["folder"]
def begun(name, pid=None):
    with open(f"{folder}/.{name}", "w") as file:
        file.write(str(pid or os.getpid()))
    os.rename(f"{folder}/.{name}", f"{folder}/{name}")
"""
_PROGRAMS = {
    "ends": 'begun("ends"); time.sleep(0.5)',
    "ignores": 'signal.signal(signal.SIGTERM, signal.SIG_IGN); begun("ignores"); time.sleep(60)',
    "blocks": 'begun("blocks"); lock = threading.Lock(); lock.acquire(); lock.acquire()',
    "spawns": "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], "
    'start_new_session=True); begun("spawns", child.pid); time.sleep(60)',
}


def declared(folder: str) -> None:
    """What calls of the programs look like."""


for name, code in _PROGRAMS.items():
    app.queue("subprocess").task(name=f"subprocess.{name}", program=[sys.executable, "-c", _BEGIN + code])(
        declared
    )
