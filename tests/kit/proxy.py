"""A proxy on loopback that cuts or holds back what a server says, at the byte that a test names."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Passes bytes between clients and one server.

    `heard` counts the bytes that clients got. After `cut`, so many more get through; then the connection that
    carries the next one is cut off, or only falls silent.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.heard = 0
        self.connections = 0
        self._server_port = port
        self._left: int | None = None
        self._is_silent = False
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self, after: int, *, silent: bool = False) -> None:
        """Let so many more bytes through, and then no more on the connection that comes to them."""
        self._left = after
        self._is_silent = silent

    def heal(self) -> None:
        """Cut nothing any more."""
        self._left = None

    def point_to(self, port: int) -> None:
        """Connect clients that come from now on to another server."""
        self._server_port = port

    def drop(self) -> None:
        """Cut every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        self.connections += 1
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            both = {writer, far_writer}
            self._writers |= both
            try:
                async with asyncio.TaskGroup() as group:
                    up = group.create_task(_pass_on(reader, far_writer))
                    down = group.create_task(self._answer(far_reader, writer))
                    await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
                    for task in (up, down):
                        task.cancel()
            finally:
                self._writers -= both
                for each in both:
                    each.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self._left is not None and len(data) > self._left:
                    data, self._left = data[: self._left], None
                    await self._write(writer, data)
                    if not self._is_silent:
                        # Closed in order, so that what was let through arrives.
                        writer.close()
                        return
                    # Until the client gives up and closes.
                    await asyncio.Event().wait()
                if self._left is not None:
                    self._left -= len(data)
                await self._write(writer, data)

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self.heard += len(data)
        writer.write(data)
        await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxied(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    """A proxy before the server on this port, with TLS towards its clients if wanted."""
    proxy = Proxy(port)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        proxy.drop()
        await listening.wait_closed()
