"""Standard input leads nowhere; output that leads to a terminal or a file goes through the keeper."""

import os
import stat
import threading
from contextlib import suppress
from typing import Final

_CHUNK: Final = 1 << 16
_LAST_WORDS: Final = 1.0
"""Seconds that a keeper waits for its output to be taken, once its tree is gone."""


class Streams:
    """Made before the fork; `serve` and `finish` are for the keeper, `use` for the new process.

    A process that holds a terminal can read what is typed there; one that holds a file can truncate it. The
    confined process gets the end of a pipe. Pipes and sockets that it was given stay as they are.
    """

    def __init__(self) -> None:
        self._pipes = {number: os.pipe() for number in (1, 2) if not _is_harmless(number)}
        self._threads: list[threading.Thread] = []

    def serve(self) -> set[int]:
        """Start threads that pass output on; returns the descriptors that they need."""
        needed = set()
        for number, (outside, inside) in self._pipes.items():
            os.close(inside)
            needed |= {outside, number}
            thread = threading.Thread(target=_pass_on, args=(outside, number), daemon=True)
            self._threads.append(thread)
            thread.start()
        return needed

    def finish(self) -> None:
        """Wait briefly for the last output."""
        for thread in self._threads:
            thread.join(_LAST_WORDS)

    def use(self, *, has_input: bool) -> None:
        """In the new process: use the pipes in place of the former descriptors."""
        if not has_input:
            nowhere = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nowhere, 0)
            os.close(nowhere)
        for number, (outside, inside) in self._pipes.items():
            os.dup2(inside, number)
            os.close(outside)
            os.close(inside)


def _pass_on(source: int, target: int) -> None:
    with suppress(OSError):
        while chunk := os.read(source, _CHUNK):
            while chunk:
                chunk = chunk[os.write(target, chunk) :]


def _is_harmless(number: int) -> bool:
    try:
        found = os.fstat(number)
    except OSError:
        return True
    is_line = stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)
    return is_line or (stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == 1)
