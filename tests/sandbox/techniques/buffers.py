"""Ways to hold memory in the kernel, where the limit on address space does not count it."""

import array
import ctypes
import errno
import fcntl
import os
import socket
import struct
import termios
from contextlib import suppress
from pathlib import Path

from tests.sandbox.scene import Scene, call, technique

_CHUNK = bytes(1 << 16)
_MOST_IN_MESSAGE = 253
_LARGEST_BUFFER = 4 << 20
_SETPIPE_SZ = 1031


def held(most: int, *, is_passed: bool) -> int:
    """Fill the buffers of socket pairs up to `most` bytes in sum; how many bytes of memory the kernel counts.

    With `is_passed` the pairs are sent over another pair when descriptors run out, so that they stay alive
    without one. What was filled lives as long as this process does.
    """
    carrier, kept = socket.socketpair()
    carrier.setblocking(False)
    pairs: list[socket.socket] = []
    total = 0
    while total < most:
        try:
            pair = socket.socketpair()
        except OSError as error:
            if error.errno != errno.EMFILE or not (is_passed and _pass_on(carrier, pairs)):
                break
            continue
        for end in pair:
            total += _fill(end)
        pairs += pair
    _keep.extend([carrier, kept, *pairs])
    return total


_keep: list[socket.socket] = []


def _fill(end: socket.socket) -> int:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_BUFFER)
    end.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            end.send(_CHUNK)
    return int(struct.unpack("<i", fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4)))[0])


def _pass_on(carrier: socket.socket, pairs: list[socket.socket]) -> bool:
    """Send them along, and close them here; False when the kernel takes no more."""
    is_done = False
    while pairs:
        some = pairs[:_MOST_IN_MESSAGE]
        rights = array.array("i", [each.fileno() for each in some])
        try:
            carrier.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError:
            break
        is_done = True
        for each in some:
            each.close()
        del pairs[: len(some)]
    return is_done


@technique()
def hold_much_in_sockets(scene: Scene) -> None:
    total = held(96 << 20, is_passed=False)
    assert total >= 96 << 20, f"only {total} bytes"


@technique()
def hold_much_in_sockets_that_are_passed_on(scene: Scene) -> None:
    total = held(96 << 20, is_passed=True)
    assert total >= 96 << 20, f"only {total} bytes"


@technique()
def enlarge_a_pipe(scene: Scene) -> None:
    fcntl.fcntl(os.pipe()[1], _SETPIPE_SZ, 1 << 20)


@technique()
def leave_pages_in_a_pipe(scene: Scene) -> None:
    """One byte of a huge page keeps all of it, unmapped or not."""
    page = ctypes.create_string_buffer(1 << 12)
    call("vmsplice", os.pipe()[1], struct.pack("<QQ", ctypes.addressof(page), 1), 1, 0)


@technique()
def leave_pages_of_a_file_in_a_pipe(scene: Scene) -> None:
    """They stay when the file is deleted."""
    Path(scene.work, "paged").write_bytes(bytes(1 << 16))
    file = os.open(f"{scene.work}/paged", os.O_RDONLY)
    assert os.splice(file, os.pipe()[1], 1)


@technique()
def send_pages_of_a_file_into_a_pipe(scene: Scene) -> None:
    Path(scene.work, "sent").write_bytes(bytes(1 << 16))
    file = os.open(f"{scene.work}/sent", os.O_RDONLY)
    assert os.sendfile(os.pipe()[1], file, 0, 1)


@technique()
def let_events_pile_up(scene: Scene) -> None:
    """Up to 16,384 in each of 128 instances, each with a name."""
    call("inotify_init1", 0)


@technique()
def make_a_set_of_rules(scene: Scene) -> None:
    """It takes a rule for each port, and a process one set for each descriptor."""
    call("landlock_create_ruleset", struct.pack("<Q", 1), 8, 0)
