"""Ways to other processes, to other programs and to more rights."""

import ctypes
import fcntl
import os
import resource
import signal
import struct
import subprocess
import termios
from pathlib import Path

from tests.sandbox.scene import IS_X86, NAME, SECRET, Scene, call, libc, technique

_ATTACH, _DETACH = 16, 17
_SLOWEST = 19
"""Anybody may go there, also from a run that was started with `nice`."""
_LOADER = "/lib64/ld-linux-x86-64.so.2" if IS_X86 else "/lib/ld-linux-aarch64.so.1"


@technique()
def read_the_variables(scene: Scene) -> None:
    assert os.environ[NAME]


@technique()
def read_the_variables_that_it_began_with(scene: Scene) -> None:
    assert SECRET.encode() in Path("/proc/self/environ").read_bytes()


@technique()
def find_the_variables_in_memory(scene: Scene) -> None:
    assert SECRET.encode() in ctypes.string_at(*scene.variables)


@technique()
def find_a_variable_where_python_had_it(scene: Scene) -> None:
    assert ctypes.string_at(scene.variable, len(SECRET)) == SECRET.encode()


@technique()
def read_the_variables_of_the_supervisor(scene: Scene) -> None:
    assert SECRET.encode() in Path(f"/proc/{scene.supervisor}/environ").read_bytes()


@technique()
def read_the_command_of_another(scene: Scene) -> None:
    Path(f"/proc/{scene.victim}/cmdline").read_bytes()


@technique()
def read_the_memory_of_another_by_its_file(scene: Scene) -> None:
    with open(f"/proc/{scene.victim}/mem", "rb", buffering=0) as memory:
        memory.seek(scene.victim_word)
        assert memory.read(len(SECRET)) == SECRET.encode()


def _spans(scene: Scene, buffer: ctypes.Array[ctypes.c_char]) -> tuple[bytes, bytes]:
    here = struct.pack("<QQ", ctypes.addressof(buffer), len(SECRET))
    return here, struct.pack("<QQ", scene.victim_word, len(SECRET))


@technique()
def read_the_memory_of_another(scene: Scene) -> None:
    buffer = ctypes.create_string_buffer(len(SECRET))
    here, there = _spans(scene, buffer)
    call("process_vm_readv", scene.victim, here, 1, there, 1, 0)
    assert buffer.raw == SECRET.encode()


@technique()
def write_the_memory_of_another(scene: Scene) -> None:
    here, there = _spans(scene, ctypes.create_string_buffer(SECRET.encode(), len(SECRET)))
    call("process_vm_writev", scene.victim, here, 1, there, 1, 0)


@technique()
def trace_another(scene: Scene) -> None:
    call("ptrace", _ATTACH, scene.victim, 0, 0)
    os.waitpid(scene.victim, 0x40000000)
    call("ptrace", _DETACH, scene.victim, 0, 0)


@technique()
def take_a_descriptor_of_another(scene: Scene) -> None:
    call("pidfd_getfd", call("pidfd_open", scene.victim, 0), scene.victim_pipe, 0)


@technique()
def signal_another(scene: Scene) -> None:
    os.kill(scene.victim, signal.SIGCONT)


@technique()
def signal_the_supervisor(scene: Scene) -> None:
    os.kill(scene.supervisor, 0)


@technique()
def kill_another(scene: Scene) -> None:
    os.kill(scene.victim, signal.SIGKILL)


@technique()
def kill_a_group(scene: Scene) -> None:
    os.killpg(scene.victim, signal.SIGKILL)


@technique()
def kill_another_by_its_descriptor(scene: Scene) -> None:
    call("pidfd_send_signal", call("pidfd_open", scene.victim, 0), signal.SIGKILL, 0, 0)


@technique(hurts=True)
def let_the_kernel_signal_another(scene: Scene) -> None:
    end, other = os.pipe()
    fcntl.fcntl(end, fcntl.F_SETOWN, scene.victim)
    fcntl.fcntl(end, 10, signal.SIGUSR1)
    fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(other, b"x")


@technique()
def move_another_to_one_processor(scene: Scene) -> None:
    os.sched_setaffinity(scene.victim, {0})


@technique()
def slow_another_down(scene: Scene) -> None:
    os.setpriority(os.PRIO_PROCESS, scene.victim, _SLOWEST)


@technique()
def slow_a_group_down(scene: Scene) -> None:
    os.setpriority(os.PRIO_PGRP, scene.victim, _SLOWEST)


@technique()
def limit_another(scene: Scene) -> None:
    resource.prlimit(scene.victim, resource.RLIMIT_CORE, (0, 0))


@technique()
def become_more_urgent(scene: Scene) -> None:
    os.nice(-5)


@technique()
def start_a_program(scene: Scene) -> None:
    subprocess.run(["/bin/true"], check=True)


@technique()
def start_a_shell(scene: Scene) -> None:
    assert os.system("exit 0") == 0


@technique()
def start_what_it_wrote(scene: Scene) -> None:
    subprocess.run([_written(scene, "wrote")], check=True)


@technique("programs")
def start_what_it_wrote_beside_an_allowed_program(scene: Scene) -> None:
    subprocess.run([_written(scene, "wrote-beside")], check=True)


@technique("programs")
def start_another_than_the_allowed_program(scene: Scene) -> None:
    subprocess.run(["/usr/bin/env"], check=True, stdout=subprocess.DEVNULL)


@technique("programs", only_namespaces="what a task brings along can run within its own process as well")
def start_what_it_wrote_by_the_loader(scene: Scene) -> None:
    subprocess.run([_LOADER, _written(scene, "loaded")], check=True)


@technique("programs")
def gain_rights_by_a_set_uid_program(scene: Scene) -> None:
    assert scene.set_id, "there is no such program"
    said = subprocess.run([scene.set_id, "-u"], check=True, capture_output=True, text=True).stdout
    assert int(said) == 0, f"uid {said}"


def _written(scene: Scene, name: str) -> str:
    path = f"{scene.work}/{name}"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(descriptor, scene.program)
    os.close(descriptor)
    return path


def _child_runs(start: int, path: bytes) -> None:
    """Execute a descriptor in a child, which has to end well."""
    arguments = (ctypes.c_char_p * 2)(b"true", None)
    pid = os.fork()
    if pid == 0:
        try:
            call("execveat", start, path, arguments, (ctypes.c_char_p * 1)(None), 0x1000)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@technique("programs")
def start_a_program_in_memory(scene: Scene) -> None:
    descriptor = call("memfd_create", b"true", 0)
    os.write(descriptor, scene.program)
    _child_runs(descriptor, b"")


@technique("programs")
def start_a_program_by_its_descriptor(scene: Scene) -> None:
    descriptor = os.open(_written(scene, "described"), os.O_RDONLY)
    _child_runs(descriptor, b"")


@technique()
def type_into_a_terminal(scene: Scene) -> None:
    assert scene.terminal >= 0, "there is no terminal"
    if os.getsid(0) != os.getpid():
        os.setsid()
    fcntl.ioctl(scene.terminal, termios.TIOCSCTTY, 0)
    fcntl.ioctl(scene.terminal, termios.TIOCSTI, b"x")


@technique()
def read_shared_memory(scene: Scene) -> None:
    attach = libc().shmat
    attach.restype = ctypes.c_void_p
    where = attach(scene.shared, None, 0o10000)
    assert where not in (None, ctypes.c_void_p(-1).value), "refused"
    assert ctypes.string_at(where, len(SECRET)) == SECRET.encode()


@technique()
def make_a_semaphore_for_others(scene: Scene) -> None:
    call("semget", 0, 1, 0o600)


@technique()
def make_a_message_queue(scene: Scene) -> None:
    name = f"q{os.getpid()}".encode()
    call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None)
    call("mq_unlink", name)
