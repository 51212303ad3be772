"""Ports for servers under test."""

import random
import socket
from typing import Final

_PORTS: Final = range(12_000, 30_000)
"""Below those that systems give to connections: none of them takes a port before its server does."""


def free_port() -> int:
    """A port on loopback that nobody uses now, and hardly anybody else draws at the same time."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
