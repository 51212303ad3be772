"""Ways through rarely used doors of the kernel."""

import ctypes
import mmap
import os
import struct

from tests.sandbox.scene import IS_X86, Scene, call, raw, technique

_NEWUSER, _NEWNS, _NEWNET = 0x10000000, 0x20000, 0x40000000
_SIGCHLD = 17


@technique()
def enter_a_new_user_namespace(scene: Scene) -> None:
    call("unshare", _NEWUSER)


@technique()
def mount_in_a_new_user_namespace(scene: Scene) -> None:
    call("unshare", _NEWUSER | _NEWNS)
    call("mount", b"none", scene.work.encode(), b"tmpfs", 0, None)


@technique()
def be_born_in_a_new_user_namespace(scene: Scene) -> None:
    pid = call("clone", _NEWUSER | _SIGCHLD, 0, 0, 0, 0)
    _reap(pid)


@technique()
def be_born_there_by_the_newer_call(scene: Scene) -> None:
    arguments = struct.pack("<QQQQQQQQ", _NEWUSER, 0, 0, 0, _SIGCHLD, 0, 0, 0)
    _reap(call("clone3", arguments, len(arguments)))


def _reap(pid: int) -> None:
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@technique()
def join_the_namespaces_of_the_supervisor(scene: Scene) -> None:
    call("setns", os.open(f"/proc/{scene.supervisor}/ns/net", os.O_RDONLY), _NEWNET)


@technique()
def change_the_root(scene: Scene) -> None:
    os.chroot(scene.work)


@technique()
def take_hold_of_a_mount(scene: Scene) -> None:
    call("open_tree", -100, b"/", 1)


@technique()
def list_the_mounts(scene: Scene) -> None:
    request = struct.pack("<IIQQ", 24, 0, 0xFFFFFFFFFFFFFFFF, 0)
    call("listmount", request, ctypes.create_string_buffer(8 * 64), 64, 0)


@technique()
def queue_calls_by_io_uring(scene: Scene) -> None:
    call("io_uring_setup", 8, ctypes.create_string_buffer(120))


@technique()
def load_a_program_into_the_kernel(scene: Scene) -> None:
    attributes = struct.pack("<IIII", 2, 4, 8, 1)
    call("bpf", 0, ctypes.create_string_buffer(attributes, 128), 128)


@technique()
def count_events_of_the_processor(scene: Scene) -> None:
    call("perf_event_open", ctypes.create_string_buffer(struct.pack("<II", 1, 112), 112), 0, -1, -1, 0)


@technique()
def handle_faults_of_memory(scene: Scene) -> None:
    call("userfaultfd", 1)


@technique()
def leave_a_key(scene: Scene) -> None:
    call("add_key", b"user", b"mark", b"x", 1, -2)


@technique()
def join_a_keyring(scene: Scene) -> None:
    call("keyctl", 1, None)


@technique()
def change_the_personality(scene: Scene) -> None:
    call("personality", 0x0040000)


@technique()
def read_the_log_of_the_kernel(scene: Scene) -> None:
    call("syslog", 3, ctypes.create_string_buffer(64), 64)


@technique()
def have_memory_that_is_a_file(scene: Scene) -> None:
    call("memfd_create", b"x", 0)


@technique()
def have_secret_memory(scene: Scene) -> None:
    call("memfd_secret", 0)


@technique()
def make_a_call_of_the_32_bit_kind(scene: Scene) -> None:
    """mov eax, 20 (getpid); int 0x80; ret"""
    assert IS_X86, "only on x86_64"
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    where = ctypes.addressof(ctypes.c_char.from_buffer(code))
    answer = ctypes.CFUNCTYPE(ctypes.c_int)(where)()
    assert answer > 0, answer


@technique()
def make_a_call_of_the_x32_kind(scene: Scene) -> None:
    assert IS_X86, "only on x86_64"
    raw(0x40000000 + 39)
