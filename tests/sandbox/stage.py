"""Runs every technique confined, and before that bare unless it is root's, and prints what came of it."""

import ctypes
import json
import os
import posix
import resource
import select
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from penstock.sandbox import linux
from penstock.sandbox.confine import Plan, prepare
from penstock.sandbox.keeper import END
from penstock.sandbox.permissions import Permissions
from tests.sandbox.scene import NAME, SECRET, TECHNIQUES, Given, Scene, Technique, libc
from tests.sandbox.techniques import (  # noqa: F401 (they register)
    amounts,
    buffers,
    descriptors,
    files,
    kernel,
    network,
    probes,
    processes,
)

PATIENCE: Final = 60.0
WORKED: Final = "worked"
UNFIT: Final = "was not confined"
UNPLAYED: Final = "was not played"


class Stage:
    """The scene, the plans, and the order of the show."""

    def __init__(self, base: Path) -> None:
        self._base = base
        for name in ("outside", "allowed", "work"):
            (base / name).mkdir()
            (base / name).chmod(0o777)
        self._word = ctypes.create_string_buffer(SECRET.encode())
        self._hold = os.pipe()
        self._sockets: list[socket.socket] = []
        self._victim = 0
        self._tidy()
        self.scene = self._scene()
        os.chdir(self.scene.outside)
        self._plans: dict[Given, Plan] = {}
        self._missing: dict[str, Any] = {}

    def play(self, technique: Technique) -> dict[str, Any]:
        """What came of it bare and confined, and what the confined one left behind."""
        self._tidy()
        # Root plays none of them unconfined: what a technique does then, it does to the whole machine.
        bare = self._run(technique, None) if os.geteuid() else UNPLAYED
        self._tidy()
        before = self._look()
        confined = self._run(technique, self._plan(technique.given))
        return {"bare": bare, "confined": confined, "left": self._changed(before)}

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        """What the block changes outside is in the list, afterwards."""
        found: list[str] = []
        before = self._look()
        yield found
        found += self._changed(before)

    def take_down(self, wall: str) -> None:
        """Go on with one wall less; of Landlock also an older version: `landlock-5`."""
        name, _, version = wall.partition("-")
        self._missing = {name: int(version or 0) if name == "landlock" else False}

    def close(self) -> None:
        """End what was started."""
        os.kill(self._victim, signal.SIGKILL)
        os.waitpid(self._victim, 0)

    def _run(self, technique: Technique, plan: Plan | None) -> str:
        scene = self.scene._replace(victim=self._victim)
        hear, say = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._act(technique, plan, scene, say)
        os.close(say)
        is_late = not select.select([hear], [], [], PATIENCE)[0]
        said = b"" if is_late else os.read(hear, 4096)
        os.close(hear)
        if is_late:
            os.kill(pid, END if plan else signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if technique.hurts:
            return WORKED if self._has_died(0.3 if plan else 10) else "the victim lives"
        return said.decode() or f"died {os.waitstatus_to_exitcode(status)}"

    def _act(self, technique: Technique, plan: Plan | None, scene: Scene, say: int) -> None:
        said = UNFIT
        try:
            if plan is not None:
                plan.apply([say])
            said = WORKED
            technique.call(scene)
        except BaseException as error:  # noqa: BLE001 (whatever refuses it)
            # What never was confined shows nothing.
            said = said if said == UNFIT else f"{type(error).__name__}: {error}"
        os.write(say, said.encode()[:4000])
        os._exit(0)

    def _plan(self, given: Given) -> Plan:
        if given not in self._plans:
            self._plans[given] = replace(prepare(permissions(given, self.scene)), **self._missing)
        return self._plans[given]

    def _tidy(self) -> None:
        """Everything outside as it was, and a living victim."""
        outside = self._base / "outside"
        for name, text in (("secret", SECRET), ("mine", "mine")):
            (outside / name).unlink(missing_ok=True)
            (outside / name).write_text(text)
            (outside / name).chmod(0o666)
        os.setxattr(outside / "secret", "user.mark", SECRET.encode())
        for path in [*outside.iterdir(), *(self._base / "work").iterdir()]:
            if path.name not in ("secret", "mine", "unix", "datagrams"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (outside / "link").symlink_to("secret")
        (self._base / "allowed" / "open").write_text("open")
        (self._base / "allowed" / "open").chmod(0o666)
        if self._victim:
            # One that was killed may take its time to die.
            os.kill(self._victim, signal.SIGKILL)
            os.waitpid(self._victim, 0)
        self._victim = self._sleeper()

    def _changed(self, before: dict[str, object]) -> list[str]:
        after = self._look()
        return [
            f"{key}: {before[key]} became {after.get(key)}" for key in before if before[key] != after.get(key)
        ]

    def _look(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in [*(self._base / "outside").iterdir(), *(self._base / "allowed").iterdir()]:
            seen = path.stat()
            text = path.read_bytes() if path.is_file() else b""
            found[path.name] = (text, seen.st_mode, seen.st_mtime_ns, seen.st_uid)
        found["names"] = sorted(found)
        found["victim has died"] = self._has_died(0)
        if not found["victim has died"]:
            found["priority"] = os.getpriority(os.PRIO_PROCESS, self._victim)
            found["processors"] = sorted(os.sched_getaffinity(self._victim))
        return found

    def _sleeper(self) -> int:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            while True:
                signal.pause()
        with suppress(OSError):
            os.setpgid(pid, pid)
        return pid

    def _has_died(self, seconds: float) -> bool:
        descriptor = os.pidfd_open(self._victim)
        try:
            if not select.select([descriptor], [], [], seconds)[0]:
                return False
        finally:
            os.close(descriptor)
        with suppress(ChildProcessError):
            os.waitpid(self._victim, 0)
        self._victim = self._sleeper()
        return True

    def _scene(self) -> Scene:
        outside, work = str(self._base / "outside"), str(self._base / "work")
        tcp, allowed_tcp = self._listener(("127.0.0.1", 0)), self._listener(("127.0.0.1", 0))
        udp = self._bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self._bound(socket.AF_UNIX, socket.SOCK_DGRAM, f"{outside}/datagrams")
        self._bound(socket.AF_UNIX, socket.SOCK_STREAM, f"{work}/unix").listen(64)
        abstract = f"penstock-stage-{os.getpid()}"
        self._bound(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract).listen(64)
        for path in (f"{outside}/datagrams", f"{work}/unix"):
            Path(path).chmod(0o777)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        set_id = self._base.parent / "set-id"
        return Scene(
            outside=outside,
            allowed=str(self._base / "allowed"),
            work=work,
            victim=self._victim,
            victim_word=ctypes.addressof(self._word),
            victim_pipe=self._hold[0],
            supervisor=os.getpid(),
            tcp=tcp.getsockname()[1],
            allowed_tcp=allowed_tcp.getsockname()[1],
            udp=udp.getsockname()[1],
            unix=f"{work}/unix",
            datagrams=f"{outside}/datagrams",
            abstract=abstract,
            descriptor=os.open(f"{outside}/secret", os.O_RDONLY),
            folder=os.open(outside, os.O_RDONLY),
            listener=tcp.fileno(),
            terminal=_terminal(),
            shared=_shared_memory(),
            variables=_variables(),
            variable=id(posix.environ[NAME.encode()]) + bytes.__basicsize__ - 1,
            most_files=most if most != resource.RLIM_INFINITY else 1 << 16,
            program=Path("/bin/true").read_bytes(),
            set_id=str(set_id) if set_id.exists() else "",
        )

    def _listener(self, address: Any) -> socket.socket:
        made = self._bound(socket.AF_INET, socket.SOCK_STREAM, address)
        with suppress(OSError):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
        made.listen(128)
        return made

    def _bound(self, family: int, kind: int, address: Any) -> socket.socket:
        made = socket.socket(family, kind)
        made.bind(address)
        self._sockets.append(made)
        return made


def permissions(given: Given, scene: Scene) -> Permissions:
    """What a technique may do, whatever it tries."""
    extra: dict[str, Any] = {
        "plain": {},
        "programs": {"run": ["/bin/echo", *filter(None, [scene.set_id])]},
        "net": {"net": [f"127.0.0.1:{scene.allowed_tcp}"]},
        "reader": {},
    }[given]
    return Permissions(
        read=[scene.allowed],
        write=[] if given == "reader" else [scene.work],
        memory=64 << 20,
        cpu_seconds=1,
        processes=8,
        file_size=1 << 20,
        **extra,
    )


def _terminal() -> int:
    try:
        return os.openpty()[1]
    except OSError:
        return -1


def _shared_memory() -> int:
    shared: int = libc().shmget(0, 4096, 0o1666)
    attach = libc().shmat
    attach.restype = ctypes.c_void_p
    ctypes.memmove(attach(shared, None, 0), SECRET.encode(), len(SECRET))
    # Goes with the last process that has it.
    libc().shmctl(shared, 0, None)
    return shared


def _variables() -> tuple[int, int]:
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[47]), int(fields[48]) - int(fields[47])


@contextmanager
def staged(base: Path) -> Iterator[Stage]:
    """A stage, ended in any case."""
    stage = Stage(base)
    try:
        yield stage
    finally:
        stage.close()


def main() -> None:
    """Play all; or with one wall taken down those that are named: `<folder> [<wall> <technique> …]`."""
    base, *weakened = sys.argv[1:]
    with staged(Path(base)) as stage:
        if weakened:
            stage.take_down(weakened[0])
        print(json.dumps({name: stage.play(TECHNIQUES[name]) for name in weakened[1:] or TECHNIQUES}))


if __name__ == "__main__":
    main()
