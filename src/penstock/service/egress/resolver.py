"""From a name to its addresses, in threads of its own."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from typing import Final

from penstock.core.ranges import Address
from penstock.service.egress.errors import EgressError

Resolve = Callable[[str, int], Awaitable[list[Address]]]
THREADS: Final = 8


class SystemResolver:
    """Asks the system. A name server that does not answer holds up these threads and no others."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-resolve")

    async def __call__(self, host: str, port: int) -> list[Address]:
        """The addresses of a name, each once; EgressError when there are none."""
        loop = asyncio.get_running_loop()
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = await loop.run_in_executor(self._threads, look_up)
        except (OSError, UnicodeError) as error:
            raise EgressError(f"the name {host} was not found: {error}") from None
        # An address with a scope is of this machine's own links: it is kept, and refused without it.
        texts = dict.fromkeys(str(place[0]).partition("%")[0] for *_, place in found)
        return [ip_address(text) for text in texts]
