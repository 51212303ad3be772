"""Ways to hold up or change others by what a descriptor can be told, though its file may only be read."""

import ctypes
import fcntl
import os
import socket
import stat
import struct

from tests.sandbox.scene import Scene, call, technique

_SETLEASE, _NOTIFY, _SET_RW_HINT, _SET_FILE_RW_HINT = 1024, 1026, 1036, 1038
_DN_ACCESS = 1
_SETSIG, _SIGURG = 10, 23
_GETFLAGS, _SETFLAGS, _NODUMP = 0x80086601, 0x40086602, 0x40
_SO_ATTACH_FILTER = 26


def _readable(scene: Scene) -> int:
    return os.open(f"{scene.allowed}/open", os.O_RDONLY)


@technique()
def lease_what_may_only_be_read(scene: Scene) -> None:
    """Who opens it for writing then waits for the holder, for as long as the system's setting says."""
    fcntl.fcntl(_readable(scene), _SETLEASE, fcntl.F_RDLCK)


@technique()
def be_told_by_signals_of_what_others_read(scene: Scene) -> None:
    fcntl.fcntl(os.open(scene.allowed, os.O_RDONLY), _NOTIFY, _DN_ACCESS)


@technique()
def choose_the_signal_of_a_descriptor(scene: Scene) -> None:
    fcntl.fcntl(os.pipe()[0], _SETSIG, _SIGURG)


@technique()
def name_who_is_signalled_by_a_descriptor(scene: Scene) -> None:
    fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getpid())


@technique()
def let_a_descriptor_signal(scene: Scene) -> None:
    end = os.pipe()[0]
    fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_ASYNC)
    assert fcntl.fcntl(end, fcntl.F_GETFL) & os.O_ASYNC


@technique()
def let_a_descriptor_signal_by_ioctl(scene: Scene) -> None:
    fcntl.ioctl(os.pipe()[0], 0x5452, struct.pack("<i", 1))


@technique()
def advise_on_writes_to_what_may_only_be_read(scene: Scene) -> None:
    fcntl.fcntl(_readable(scene), _SET_RW_HINT, struct.pack("<Q", 2))


@technique()
def change_the_flags_of_what_may_only_be_read(scene: Scene) -> None:
    file = _readable(scene)
    (flags,) = struct.unpack("<I", fcntl.ioctl(file, _GETFLAGS, bytes(4)))
    fcntl.ioctl(file, _SETFLAGS, struct.pack("<I", flags | _NODUMP))


@technique("reader")
def lock_other_readers_out(scene: Scene) -> None:
    fcntl.flock(_readable(scene), fcntl.LOCK_EX | fcntl.LOCK_NB)


@technique()
def make_an_unnamed_file_set_uid(scene: Scene) -> None:
    os.umask(0)
    descriptor = os.open(scene.work, os.O_TMPFILE | os.O_WRONLY, 0o6755)
    assert os.fstat(descriptor).st_mode & stat.S_ISUID


@technique()
def attach_a_program_to_a_socket(scene: Scene) -> None:
    steps = ctypes.create_string_buffer(struct.pack("<HBBI", 0x06, 0, 0, 0xFFFFFFFF))
    program = struct.pack("<HxxxxxxQ", 1, ctypes.addressof(steps))
    socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


@technique()
def queue_calls_by_the_older_way(scene: Scene) -> None:
    """How many of them there can be is one number for the whole system."""
    context = ctypes.c_ulong()
    call("io_setup", 8, ctypes.byref(context))
