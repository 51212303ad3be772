"""Responses of handlers, and how they are sent."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.service.limits import Send
from penstock.service.problems import MEDIA_TYPE, Problem

T = TypeVar("T")
JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
_ENCODER: Final = msgspec.json.Encoder()


class Response(Generic[T]):
    """A body with a status or headers that differ from the route's own."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, body: T, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
        self.body = body
        self.status = status
        self.headers = headers or {}


class StreamResponse:
    """An answer without an end, piece by piece, such as server-sent events."""

    __slots__ = ("media_type", "pieces")

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str = EVENTS) -> None:
        self.pieces = pieces
        self.media_type = media_type


class EncodedBody:
    """A body that is encoded already."""

    __slots__ = ("body", "media_type")

    def __init__(self, body: bytes, media_type: str = JSON) -> None:
        self.body = body
        self.media_type = media_type


def encoded(body: Any) -> tuple[bytes, str]:
    """The body and its media type; None is no body."""
    if isinstance(body, EncodedBody):
        return body.body, body.media_type
    if body is None:
        return b"", JSON
    return _ENCODER.encode(body), MEDIA_TYPE if isinstance(body, Problem) else JSON


async def send_body(send: Send, status: int, body: bytes, media: str, headers: Mapping[str, str]) -> None:
    """Send a whole response."""
    await send({"type": "http.response.start", "status": status, "headers": _head(headers, media, len(body))})
    await send({"type": "http.response.body", "body": body})


async def send_stream(send: Send, status: int, stream: StreamResponse, headers: Mapping[str, str]) -> None:
    """Send each piece as it comes; an error before the first piece still becomes a response with a status."""
    async with aclosing(stream.pieces) as pieces:
        piece: bytes | None = await anext(pieces, None)
        head = _head(headers, stream.media_type)
        await send({"type": "http.response.start", "status": status, "headers": head})
        while piece is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await anext(pieces, None)
    await send({"type": "http.response.body", "body": b""})


def _head(headers: Mapping[str, str], media: str, size: int | None = None) -> list[tuple[bytes, bytes]]:
    # Answers are a tenant's own: no cache may hand them to another, and no browser guess at them.
    head = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    if size is not None:
        head.append((b"content-length", b"%d" % size))
    if size != 0:
        head.append((b"content-type", media.encode()))
    head += [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    return head
