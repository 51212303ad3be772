"""One connection to a service: a request at a time, and the answer to it."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import httptools
import msgspec

HEAD_BYTES: Final = 64 << 10
ANSWER_BYTES: Final = 256 << 20
"""The largest answer that is read."""
_LONGEST: Final = 3
"""So many times its timeout a call may take while it moves."""


class LateAnswerError(ConnectionError):
    """An answer did not come in time."""


class Answer(msgspec.Struct):
    """An answer: what of it is read."""

    status: int
    body: bytes
    headers: dict[bytes, bytes]


class Connection(asyncio.Protocol):
    """Sends one request after the other. Whatever is late, cut or not understood ends the connection.

    With `on_push`, the body of an answer with the status 200 is handed over piece by piece as it comes.
    """

    def __init__(self, on_push: Callable[[bytes], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_push = on_push
        # The parser calls the `on_…` methods below.
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._pieces: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._size = self._head_size = self._received = 0
        self._why = "the connection was closed"
        self.quiet_since = self._loop.time()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_usable(self) -> bool:
        """True when another request can be sent."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    async def call(self, head: bytes, body: bytes, timeout: float) -> Answer:
        """The answer to a request; LateAnswerError, and the line is closed, when it does not come in time.

        What is large and still moves, on the way there or back, is not late yet.
        """
        if not self.is_usable or self._transport is None:
            raise ConnectionError(self._why)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answer = answer
        self._transport.write(head + body)
        try:
            for _ in range(_LONGEST):
                before = self._moved(self._transport)
                await asyncio.wait([answer], timeout=timeout)
                if answer.done():
                    return answer.result()
                if self._moved(self._transport) == before:
                    break
            self.close(f"no answer for {timeout:g} s")
            raise LateAnswerError(self._why)
        finally:
            if not answer.done():
                # What comes would be taken for the answer to the next request.
                answer.cancel()
                self.close("the call was given up")

    def _moved(self, transport: asyncio.Transport) -> tuple[int, int]:
        return self._received, transport.get_write_buffer_size()

    def close(self, why: str = "") -> None:
        """Close it at once; the call under way fails."""
        self._why = why or self._why
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes of an answer."""
        if self._answer is None and self._on_push is None:
            self.close("it said something that nobody asked for")
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close(f"the answer is not one of HTTP/1.1 ({error})")

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        if error is not None:
            self._why = str(error) or self._why
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(self._why))
        self._answer = None
        if not self.closed.done():
            self.closed.set_result(None)

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """One more."""
        self._head_size += len(name) + len(value)
        if self._head_size > HEAD_BYTES:
            self.close(f"the head of the answer is longer than {HEAD_BYTES} bytes")
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is there."""
        if self._on_push is not None and self._parser.get_status_code() == 200:
            self._complete(self._on_push)

    def on_body(self, piece: bytes) -> None:
        """Some of the body."""
        if self._on_push is not None and self._answer is None:
            self._on_push(piece)
            return
        self._size += len(piece)
        if self._size > ANSWER_BYTES:
            self.close(f"the answer is longer than {ANSWER_BYTES} bytes")
            return
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """The answer is there."""
        status = self._parser.get_status_code()
        if self._answer is None:
            # A stream has come to its end.
            self.close()
        elif status >= 200:
            self._complete(None)
        else:
            self._pieces, self._headers, self._size, self._head_size = [], {}, 0, 0

    def _complete(self, on_push: Callable[[bytes], None] | None) -> None:
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(Answer(self._parser.get_status_code(), body, self._headers))
        self._pieces, self._headers, self._size, self._head_size = [], {}, 0, 0
        self.quiet_since = self._loop.time()
        if on_push is None and not self._parser.should_keep_alive():
            self.close()
