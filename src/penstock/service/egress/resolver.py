"""From a name to its addresses, in threads of its own."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final

from penstock.core.errors import EgressError
from penstock.service.egress.ranges import Address

Resolve = Callable[[str, int], Awaitable[list[Address]]]
THREADS: Final = 8


class SystemResolver:
    """Asks the system. A name server that does not answer holds up these threads and no others."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-resolve")

    async def __call__(self, host: str, port: int) -> list[Address]:
        """The addresses of a name, each once; EgressError when there are none."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads, _look_up, host, port)
        except (OSError, UnicodeError) as error:
            raise EgressError(f"the name {host} was not found: {error}") from None
        # A scope behind an address is of no use to others: with it the text is none, and is left out.
        texts = dict.fromkeys(str(place[0]) for *_, place in found)
        return [ip_address(text) for text in texts if "%" not in text]


def _look_up(host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    # The dot at the end keeps the system from trying the name within domains of its own.
    name = host if "." not in host else f"{host}."
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [(int(a), int(b), c, d, e) for a, b, c, d, e in found]
