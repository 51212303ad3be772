"""What one request may take: bytes, time, and how many may wait at once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from penstock.service.errors import MalformedError, SlowRequestError, TooLargeError, UnsupportedMediaError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LONGEST_WAIT: Final = 60.0
"""The longest long poll, in seconds."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of every request. Times are seconds."""

    body_bytes: int = 8 << 20
    json_values: int = 50_000
    """Values in a JSON body: each list, each object and each comma outside of text counts as one."""
    head_bytes: int = 32 << 10
    headers: int = 64
    head_timeout: float = 10.0
    """For the request line and headers."""
    body_timeout: float = 30.0
    """For the whole body: a client that drips bytes is cut off."""
    send_timeout: float = 30.0
    """For a client to take one piece of an answer."""
    connections: int = 1_000
    streams: int = 500
    """Streams and long polls at once, of all tenants."""
    batch: int = 1_000
    """Jobs, leases or settlements in one request."""


class Disconnected(Exception):
    """The client went away, or takes nothing any more."""


async def read_body(limits: Limits, headers: Mapping[str, str], receive: Receive) -> bytes:
    """The whole body, within its bounds."""
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise UnsupportedMediaError(f"content-encoding: found {encoding!r}, wanted none")
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or not announced.isascii():
        raise MalformedError(f"content-length: found {announced!r}, wanted a number")
    if int(announced[:20]) > limits.body_bytes:
        raise _too_large(limits, announced[:20])
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_timeout):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Disconnected
                if chunk := message.get("body", b""):
                    size += len(chunk)
                    if size > limits.body_bytes:
                        raise _too_large(limits, f"more than {limits.body_bytes}")
                    chunks.append(chunk)
                if not message.get("more_body", False):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except TimeoutError:
        raise SlowRequestError(f"the body was not there after {limits.body_timeout:g} s") from None


def within(limits: Limits, send: Send) -> Send:
    """`send`, given up when the client does not take what it is sent."""

    async def bounded(message: Message) -> None:
        try:
            async with asyncio.timeout(limits.send_timeout):
                await send(message)
        except TimeoutError:
            raise Disconnected from None

    return bounded


def _too_large(limits: Limits, found: str) -> TooLargeError:
    return TooLargeError(f"the body: found {found} bytes, wanted at most {limits.body_bytes}")
