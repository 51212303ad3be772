"""Ways to hold up or change others by what a descriptor can be told, though its file may only be read."""

import ctypes
import fcntl
import mmap
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
_FUTEX_REQUEUE, _FUTEX_CMP_REQUEUE = 3, 4
_LIST_ADDRESSES = 0x8912
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


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


def _shared_words(scene: Scene) -> tuple[int, int]:
    """Where the first words of a file are that may only be read, and a word of our own."""
    size, no_offset = ctypes.c_size_t(mmap.PAGESIZE), ctypes.c_long(0)
    there = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, _readable(scene), no_offset)
    own = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, no_offset)
    return there, own


@technique()
def take_over_who_waits_in_a_file_that_may_only_be_read(scene: Scene) -> None:
    """Whoever waits there for a lock then waits here, and nobody will ever wake it."""
    there, own = _shared_words(scene)
    call("futex", there, _FUTEX_REQUEUE, 0, 1, own, 0)


@technique()
def take_them_over_after_a_look(scene: Scene) -> None:
    there, own = _shared_words(scene)
    call("futex", there, _FUTEX_CMP_REQUEUE, 0, 1, own, int.from_bytes(ctypes.string_at(there, 4), "little"))


@technique()
def take_them_over_by_the_newer_call(scene: Scene) -> None:
    """Linux 6.7 has it."""
    there, own = _shared_words(scene)
    value = int.from_bytes(ctypes.string_at(there, 4), "little")
    waiters = struct.pack("<QQIIQQII", value, there, 2, 0, 0, own, 2, 0)
    call("futex_requeue", waiters, 0, 0, 1)


@technique()
def list_the_addresses_of_the_machine(scene: Scene) -> None:
    """Any socket will do."""
    found = ctypes.create_string_buffer(1 << 10)
    wanted = struct.pack("<iIQ", len(found), 0, ctypes.addressof(found))
    (length,) = struct.unpack_from("<i", fcntl.ioctl(socket.socketpair()[0], _LIST_ADDRESSES, wanted))
    assert length, "there is none"
