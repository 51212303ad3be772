"""Standard input leads nowhere; output that leads to a terminal or a file goes through the keeper."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

_CHUNK: Final = 1 << 16


class Streams:
    """Made before the fork; `serve` is for the keeper, `use` for the new process.

    Whoever holds a terminal can read what is typed there, and whoever holds a file can cut it short: so the
    confined process gets the end of a pipe. Pipes and sockets that it was given stay as they are.
    """

    def __init__(self) -> None:
        self._pipes = {number: os.pipe() for number in (1, 2) if not _is_harmless(number)}

    @property
    def are_used(self) -> bool:
        """True when the keeper writes for the process inside."""
        return bool(self._pipes)

    def serve(self) -> dict[int, Callable[[], bool]]:
        """By descriptor, what to do when there is output."""
        for _, inside in self._pipes.values():
            os.close(inside)
        return {outside: partial(_pass_on, outside, number) for number, (outside, _) in self._pipes.items()}

    def use(self) -> None:
        """In the new process: the pipes instead of what was there."""
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.close(nowhere)
        for number, (outside, inside) in self._pipes.items():
            os.dup2(inside, number)
            os.close(outside)
            os.close(inside)


def _pass_on(source: int, target: int) -> bool:
    os.set_blocking(source, False)
    with suppress(OSError):
        while chunk := os.read(source, _CHUNK):
            while chunk:
                chunk = chunk[os.write(target, chunk) :]
        return False
    return True


def _is_harmless(number: int) -> bool:
    try:
        found = os.fstat(number)
    except OSError:
        return True
    is_line = stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)
    return is_line or (stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == 1)
