"""Bounds of requests: bytes, times, and how many of them are admitted at once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, Protocol

import msgspec

from penstock.core.errors import OptionError
from penstock.service.errors import MalformedError, SlowRequestError, TooLargeError, UnsupportedMediaError
from penstock.stores.wire import ANSWER_BYTES

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CONNECTION: Final = "penstock.connection"
"""The key in a scope of the request's connection, where the service's own server accepted it."""
LONGEST_WAIT: Final = 60.0
"""The longest long poll, in seconds."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of every request. Times are seconds."""

    body_bytes: int = 8 << 20
    json_values: int = 50_000
    """Values in a JSON body: each list, each object and each comma outside of text counts as one."""
    answer_bytes: int = ANSWER_BYTES
    """Payloads and results in one answer: the record that reaches this is its last one."""
    head_bytes: int = 32 << 10
    headers: int = 64
    head_timeout: float = 10.0
    """For a client to send the request line and headers."""
    body_timeout: float = 30.0
    """For the whole body: a client that drips bytes is cut off."""
    send_timeout: float = 30.0
    """For a client to take one piece of an answer."""
    connections: int = 1_000
    """Connections at once; at the limit, one that waits for its client is closed for a new one."""
    connections_per_peer: int = 200
    """Connections of one address on which no token was accepted yet."""
    connections_per_tenant: int = 500
    """Connections on which a token of one tenant was accepted."""
    pipelined: int = 64
    """Requests that wait on one connection for the answer to the one before."""
    requests_per_tenant: int = 250
    """Requests of one tenant that are admitted at once, without streams and long polls."""
    concurrent_requests: int = 32
    """Of these, requests whose handler runs; the others wait for their turn."""
    bodies_per_tenant: int = 256 << 20
    """Bytes of one tenant's bodies that are read or handled at once, without those of up to 64 KiB."""
    streams: int = 500
    """Streams and long polls at once, of all tenants."""
    streams_per_tenant: int = 250
    """Streams and long polls of a tenant whose quota does not bound them."""
    batch: int = 1_000
    """Jobs, leases or settlements in one request."""


def limits_of(
    *,
    connections: int = 1_000,
    connections_per_peer: int | None = None,
    connections_per_tenant: int | None = None,
    requests_per_tenant: int | None = None,
    streams: int | None = None,
    streams_per_tenant: int | None = None,
    json_values: int = 50_000,
) -> Limits:
    """Limits in proportion to the connections, where they are not given; OptionError for impossible ones.

    >>> limits_of(connections=100).streams, limits_of() == Limits()
    (50, True)
    """
    if streams is not None and streams >= connections:
        raise OptionError("streams", streams, f"fewer than the {connections} connections")
    streams = streams or max(1, connections // 2)
    return Limits(
        connections=connections,
        connections_per_peer=connections_per_peer or max(1, connections // 5),
        connections_per_tenant=connections_per_tenant or max(1, connections // 2),
        requests_per_tenant=requests_per_tenant or max(1, connections // 4),
        streams=streams,
        streams_per_tenant=streams_per_tenant or max(1, streams // 2),
        json_values=json_values,
    )


class RequestConnection(Protocol):
    """The connection on which a request came."""

    def identified(self, tenant: str) -> None:
        """A token of this tenant was accepted; BusyError where the tenant has too many connections."""
        ...

    def refused(self) -> None:
        """The request is refused after a pause, in which the connection may be closed for another one."""
        ...


class Disconnected(Exception):
    """The client went away, or stopped reading."""


async def read_body(
    limits: Limits, headers: Mapping[str, str], receive: Receive, grow: Callable[[int], None]
) -> bytes:
    """The whole body, within its bounds; `grow` is told how many bytes it has, and may refuse them."""
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise UnsupportedMediaError(f"content-encoding: found {encoding!r}, wanted none")
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or not announced.isascii():
        raise MalformedError(f"content-length: found {announced!r}, wanted a number")
    if int(announced[:20]) > limits.body_bytes:
        raise _too_large(limits, announced[:20])
    grow(int(announced))
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
                    grow(size)
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
