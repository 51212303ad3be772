"""Servers that say what a test wants them to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from penstock.stores.remote import RemoteStore
from penstock.stores.wire import Hello
from tests.conformance.stores import patient

Say = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[None]]
"""What to do for a request: the last part of its path, its head, and where the answer goes."""


def answer(status: int, body: bytes = b"", media: str = "application/msgpack", more: str = "") -> bytes:
    """A whole answer."""
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {media}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def packed(value: Any) -> bytes:
    """A good answer."""
    return answer(200, msgspec.msgpack.encode(value))


def problem(status: int, detail: str = "why", **more: Any) -> bytes:
    """A problem."""
    told = {"type": "urn:penstock:x", "title": "X", "status": status, "detail": detail, **more}
    return answer(status, msgspec.json.encode(told), "application/problem+json")


HELLO = packed(Hello("memory", True, 1 << 20))


@asynccontextmanager
async def saying(say: Say) -> AsyncIterator[str]:
    """The url of a server that greets as a service does, and says this to every other request."""
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(size)
                name = head.split(b" ")[1].rpartition(b"/")[2].decode()
                if name == "hello" and b"refused" not in head:
                    writer.write(HELLO)
                else:
                    await say(name, head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in list(writers):
            writer.transport.abort()
        await server.wait_closed()


@asynccontextmanager
async def opened(url: str, **more: Any) -> AsyncIterator[Any]:
    """A remote store, open for the time of the block."""
    store = RemoteStore(patient(url), **more)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
