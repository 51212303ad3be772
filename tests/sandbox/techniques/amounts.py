"""Ways to use up more than was given."""

import mmap
import os
import resource
import signal
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.sandbox.scene import Scene, call, technique

_MANY = 48


@technique()
def start_many_processes(scene: Scene) -> None:
    wait, go = os.pipe()
    started = []
    with suppress(OSError):
        for _ in range(_MANY):
            pid = os.fork()
            if pid == 0:
                os.close(go)
                os.read(wait, 1)
                os._exit(0)
            started.append(pid)
    os.close(go)
    for pid in started:
        os.waitpid(pid, 0)
    assert len(started) == _MANY, f"{len(started)} processes"


@technique()
def start_many_threads(scene: Scene) -> None:
    go = threading.Event()
    threads = [threading.Thread(target=go.wait, daemon=True) for _ in range(_MANY)]
    try:
        for thread in threads:
            thread.start()
    finally:
        go.set()


@technique()
def start_many_beyond_a_raised_limit(scene: Scene) -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (4096, 4096))
    start_many_processes(scene)


@technique()
def take_much_memory(scene: Scene) -> None:
    len(bytearray(256 << 20))


@technique()
def take_much_shared_memory(scene: Scene) -> None:
    mmap.mmap(-1, 256 << 20)


@technique()
def use_much_time(scene: Scene) -> None:
    while time.process_time() < 1.1:
        sum(range(1000))


@technique()
def open_many_files(scene: Scene) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (scene.most_files, scene.most_files))
    [os.open("/dev/null", os.O_RDONLY) for _ in range(2000)]


@technique()
def queue_many_signals(scene: Scene) -> None:
    """How many there can be is one number for all processes of the user, and so is that of its timers."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    said = struct.pack("<iii116x", signal.SIGRTMIN, 0, -1)
    for _ in range(4_000):
        call("rt_sigqueueinfo", os.getpid(), int(signal.SIGRTMIN), said)


@technique()
def leave_a_core(scene: Scene) -> None:
    os.chdir(scene.work)
    pid = os.fork()
    if pid == 0:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (64 << 20, 64 << 20))
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
        os.abort()
    _, status = os.waitpid(pid, 0)
    for core in Path(scene.work).glob("core*"):
        core.unlink()
    assert os.WCOREDUMP(status), "no core"
