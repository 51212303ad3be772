"""What has to work within permissions; each is done by a confined process of its own."""

import asyncio
import fcntl
import http.client
import http.server
import json
import multiprocessing
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from penstock.sandbox import linux
from penstock.sandbox.confine import Plan, prepare
from penstock.sandbox.permissions import Permissions

Work = Callable[[Path, int], object]
WORKS: Final[dict[str, Work]] = {}
FINE: Final = "fine"
READS: Final = b"hello from outside"


def work(call: Work) -> Work:
    """Take it into the list."""
    WORKS[getattr(call, "__name__", "")] = call
    return call


@work
def import_modules_late(folder: Path, port: int) -> None:
    for name in ("decimal", "sqlite3", "zipfile", "msgspec", "penstock.core.retry", "tests.kit.clock"):
        __import__(name)


@work
def use_threads(folder: Path, port: int) -> None:
    done: list[int] = []
    threads = [threading.Thread(target=done.append, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3]


@work
def fork_and_wait(folder: Path, port: int) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@work
def signal_its_own_children(folder: Path, port: int) -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@work
def run_an_event_loop(folder: Path, port: int) -> None:
    async def main() -> None:
        assert await asyncio.to_thread(lambda: 5) == 5

    asyncio.run(main())


@work
def read_what_may_be_read(folder: Path, port: int) -> None:
    assert (folder / "read" / "file").read_bytes() == READS
    assert [each.name for each in (folder / "read").iterdir()] == ["file"]
    assert (folder / "link" / "file").read_bytes() == READS


@work
def write_where_it_may(folder: Path, port: int) -> None:
    place = folder / "work"
    (place / "deep").mkdir()
    (place / "deep" / "file").write_text("x")
    (place / "deep" / "file").rename(place / "moved")
    (place / "link").symlink_to("moved")
    assert (place / "link").read_text() == "x"
    with (place / "moved").open("a") as file:
        file.write("y")
    os.truncate(place / "moved", 1)
    shutil.rmtree(place / "deep")
    with tempfile.NamedTemporaryFile(dir=place) as temporary:
        temporary.write(b"x")
    shutil.copyfile(place / "moved", place / "copied")


@work
def use_temporary_files(folder: Path, port: int) -> None:
    with tempfile.TemporaryFile(dir=folder / "work") as unnamed:
        unnamed.write(b"x")
        # Python would do without O_TMPFILE where that is refused.
        assert os.fstat(unnamed.fileno()).st_nlink == 0
    with tempfile.TemporaryDirectory(dir=folder / "work") as made:
        Path(made, "file").write_text("x")
    os.close(os.open(folder / "work", os.O_TMPFILE | os.O_RDWR, 0o600))


@work
def use_a_database(folder: Path, port: int) -> None:
    path = folder / "work" / "a.db"
    for mode in ("wal", "delete"):
        with sqlite3.connect(path) as database:
            assert database.execute(f"pragma journal_mode={mode}").fetchone() == (mode,)
            database.execute("create table if not exists t (x)")
            database.execute("insert into t values (1)")
        database.close()
    reading = sqlite3.connect(f"file:{folder}/read.db?mode=ro", uri=True)
    assert reading.execute("select x from t").fetchall() == [(7,)]
    reading.close()


@work
def lock_what_it_may_write(folder: Path, port: int) -> None:
    with (folder / "work" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_UN)


@work
def copy_by_what_is_there(folder: Path, port: int) -> None:
    source = folder / "work" / "source"
    source.write_bytes(READS * 10_000)
    shutil.copyfile(source, folder / "work" / "target")
    assert (folder / "work" / "target").read_bytes() == READS * 10_000
    one, other = socket.socketpair()
    with (folder / "read" / "file").open("rb") as file, one, other:
        assert one.sendfile(file) == len(READS)
        assert other.recv(100) == READS


@work
def set_the_size_of_buffers(folder: Path, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@work
def measure_itself(folder: Path, port: int) -> None:
    own = ~os.getpid() << 3 | 2
    for clock in (time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID, own):
        assert time.clock_gettime(clock) >= 0
        assert time.clock_getres(clock) >= 0
    times: list[float] = []
    ask = threading.Thread(target=lambda: times.append(_time_of_this_thread()))
    ask.start()
    ask.join()
    assert len(times) == 1
    assert os.sched_getaffinity(0) == os.sched_getaffinity(os.getpid())
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    os.getpriority(os.PRIO_PROCESS, 0)


def _time_of_this_thread() -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident()))


@work
def use_processes_of_multiprocessing(folder: Path, port: int) -> None:
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=theirs.send, args=([1, 2],))
    child.start()
    assert ours.recv() == [1, 2]
    child.join()
    assert child.exitcode == 0


@work
def use_devices(folder: Path, port: int) -> None:
    assert len(os.urandom(8)) == 8
    Path("/dev/null").write_text("x")
    with Path("/dev/urandom").open("rb") as file:
        assert len(file.read(4)) == 4


@work
def see_its_variables(folder: Path, port: int) -> None:
    assert os.environ["SHOWN"] == "shown"
    assert "HIDDEN" not in os.environ
    assert set(os.environ) <= {"SHOWN", "PATH", "TZ", "LANG", "LANGUAGE"} | {
        name for name in os.environ if name.startswith("LC_")
    }


@work
def run_an_allowed_program(folder: Path, port: int) -> None:
    said = subprocess.run(["/bin/echo", "hello"], check=True, capture_output=True, text=True).stdout
    assert said == "hello\n"


@work
def run_a_program_by_asyncio(folder: Path, port: int) -> None:
    async def main() -> None:
        started = await asyncio.create_subprocess_exec("/bin/echo", "hello", stdout=asyncio.subprocess.PIPE)
        said, _ = await started.communicate()
        assert (said, started.returncode) == (b"hello\n", 0)

    asyncio.run(main())


@work
def find_an_allowed_program_by_its_name(folder: Path, port: int) -> None:
    said = subprocess.run(["cat"], check=True, capture_output=True, input=b"x").stdout
    assert said == b"x"


@work
def read_what_the_kernel_tells_everybody(folder: Path, port: int) -> None:
    assert Path("/proc/meminfo").read_text()


@work
def connect_to_an_allowed_address(folder: Path, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        assert sock.getpeername() == ("127.0.0.1", port)
        assert sock.family == socket.AF_INET
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200" in sock.recv(100)


@work
def keep_options_that_were_set_before_connecting(folder: Path, port: int) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(3)
        sock.connect(("127.0.0.1", port))
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.gettimeout() == 3


@work
def ask_a_web_server(folder: Path, port: int) -> None:
    connection = http.client.HTTPConnection("localhost", port, timeout=5)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    assert urllib.request.urlopen(f"http://localhost:{port}/", timeout=5).status == 200


@work
def connect_many_at_once_by_asyncio(folder: Path, port: int) -> None:
    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("localhost", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        line = await reader.readline()
        writer.close()
        return line

    async def main() -> None:
        lines = await asyncio.gather(*(ask() for _ in range(8)))
        assert all(b"200" in line for line in lines)

    asyncio.run(main())


@work
def hear_why_it_was_refused(folder: Path, port: int) -> None:
    with pytest.raises(PermissionError, match=f"localhost:{port + 1} is not among the permissions"):
        socket.create_connection(("localhost", port + 1), timeout=5)


@work
def hear_of_a_refused_connection(folder: Path, port: int) -> None:
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", 1)) == 111


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def _server() -> tuple[int, int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    pid = os.fork()
    if pid == 0:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        server.serve_forever()
    port = server.server_address[1]
    server.socket.close()
    return pid, port


def _do(each: Work, folder: Path, port: int, plan: Plan) -> str:
    hear, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = FINE
        try:
            plan.apply([say])
            each(folder, port)
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is told)
            said = f"{type(error).__name__}: {error}"
        os.write(say, said.encode()[:4000])
        os._exit(0)
    os.close(say)
    said = os.read(hear, 4096).decode()
    os.close(hear)
    _, status = os.waitpid(pid, 0)
    return said or f"died {os.waitstatus_to_exitcode(status)}"


def main() -> None:
    """Do all, in the folder named on the command line, and print what came of each."""
    folder = Path(sys.argv[1])
    for name in ("read", "work"):
        (folder / name).mkdir()
    (folder / "work").chmod(0o777)
    (folder / "read" / "file").write_bytes(READS)
    (folder / "link").symlink_to("read")
    with sqlite3.connect(folder / "read.db") as database:
        database.execute("create table t (x)")
        database.execute("insert into t values (7)")
    database.close()
    os.environ |= {"SHOWN": "shown", "HIDDEN": "hidden"}
    pid, port = _server()
    plan = prepare(
        Permissions(
            read=[str(folder / "link"), str(folder / "read.db"), "/proc/meminfo"],
            write=[str(folder / "work")],
            env=["SHOWN"],
            run=["/bin/echo", "cat"],
            net=[f"127.0.0.1:{port}", f"localhost:{port}", "127.0.0.1:1"],
            memory=256 << 20,
            processes=32,
        )
    )
    try:
        print(json.dumps({name: _do(each, folder, port, plan) for name, each in WORKS.items()}))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
