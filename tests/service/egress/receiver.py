"""A receiver of requests on loopback that answers as it is told, byte by byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


class Request(msgspec.Struct, frozen=True):
    """What arrived."""

    line: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Takes one request on each connection. `answer` makes the bytes that go back; None lets it wait."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0
        self.answer: Callable[[Request], bytes | None] = lambda request: OK
        self._came = asyncio.Condition()

    async def arrived(self, count: int) -> list[Request]:
        """The requests, once there are so many."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            told = (line.partition(": ") for line in head[1:] if line)
            headers = {name.lower(): value for name, _, value in told}
            request = Request(head[0], headers, await reader.readexactly(int(headers["content-length"])))
            async with self._came:
                self.requests.append(request)
                self._came.notify_all()
            answer = self.answer(request)
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(secure: ssl.SSLContext | None = None, **more: Any) -> AsyncIterator[Receiver]:
    """A receiver on a port of its own."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.take, "127.0.0.1", 0, ssl=secure, **more)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver
