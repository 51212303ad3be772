"""Ports for servers under test, each of them owned by one process of one run."""

import random
import socket
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Final

_PORTS: Final = range(12_000, 30_000)
"""Below those that systems give to connections: none of them takes a port before its server does."""
_BLOCK: Final = 50
"""So many ports are taken at once."""


def free_port() -> int:
    """A port on loopback that nobody uses now, and that no other call gets, here or in another run."""
    return next(port for port in _own_ports() if _is_free(port))


@cache
def _own_ports() -> Iterator[int]:
    """The ports of this process, each once: more are taken when those it has are used up."""
    blocks = list(range(_PORTS.start, _PORTS.stop, _BLOCK))
    # Runs that begin together should not all try the same blocks first.
    random.SystemRandom().shuffle(blocks)
    return chain.from_iterable(range(first, first + _BLOCK) for first in blocks if _take(first))


_taken: Final[list[socket.socket]] = []
"""What marks the blocks of this process. The system forgets the marks with the process, however it ends."""


def _take(first: int) -> bool:
    """Mark the block that begins at this port as ours; False when another process has it."""
    # Abstract names are known in a network namespace, just as the ports are, and leave no file behind.
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0penstock-test-ports-{first}")
    except OSError:
        mark.close()
        return False
    _taken.append(mark)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
