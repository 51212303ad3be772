"""One connection: calls share it, and replies come in the order of the calls."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import hiredis

from penstock.stores.redis.address import Address, Target

_NOTHING: Final = object()
_LONGEST: Final = 3
"""So many times the answer timeout a reply may take while it comes: within half a lease of 30 seconds."""


class ReplyError(Exception):
    """The server answered with an error."""


class LateReplyError(ConnectionError):
    """A reply did not come in time."""


class Connection(asyncio.Protocol):
    """Sends calls as they come: the first of a turn of the loop at once, those after it in one write.

    A reply belongs to the oldest call, also when nobody waits for it any more: a cancelled call leaves
    nothing behind for the next one. When a reply is late, cut or not understood, the connection is closed and
    all its calls fail; a large one that keeps coming in is not late yet. `on_call_ended` is called at the end
    of each call, `on_lost` at the end of the connection, and `on_push` with a reply that comes while no call
    waits, which only a subscriber expects.
    """

    on_call_ended: Callable[[], None] | None = None

    def __init__(
        self,
        answer_timeout: float,
        *,
        on_lost: Callable[["Connection"], None] | None = None,
        on_push: Callable[[Any], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer_timeout = answer_timeout
        self._on_lost = on_lost
        self._on_push = on_push
        self._reader = hiredis.Reader(replyError=ReplyError, notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._is_joining = False
        self._calls: deque[_Call] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._used_at = self._received_at = self._ended_at = self._loop.time()
        self._is_greeted = False
        self._close_reason = ""
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def calls(self) -> int:
        """How many calls wait for their replies."""
        return len(self._calls)

    @property
    def quiet_for(self) -> float:
        """Seconds since it was last used."""
        return 0.0 if self._calls else self._loop.time() - self._used_at

    def call(self, packed: bytes, replies: int) -> "asyncio.Future[list[Any]]":
        """Send packed commands; a future of their replies, of which some may be errors."""
        now = self._used_at = self._loop.time()
        call = _Call(self._loop.create_future(), replies, now)
        if self.closed.done():
            # The call fails in a later turn of the loop, as calls end that were sent.
            self._loop.call_soon(self._end, call, ConnectionError(self._close_reason))
            return call.future
        self._calls.append(call)
        if self._watch is None:
            self._watch = self._loop.call_at(now + self._answer_timeout, self._look)
        self.send_nowait(packed)
        return call.future

    def send_nowait(self, packed: bytes) -> None:
        """Send packed commands whose replies go to `on_push` instead of being waited for."""
        if self._is_joining:
            self._unsent.append(packed)
            return
        # The first of a turn goes out before the turn goes on: the server works while this process does.
        self._is_joining = True
        self._loop.call_soon(self._send)
        if self._transport is not None and not self.closed.done():
            self._transport.write(packed)

    def close(self, error: Exception | None = None) -> None:
        """Close at once; calls that wait fail with the error. Harmless when it is closed already."""
        if self.closed.done():
            return
        self.closed.set_result(None)
        self._close_reason = str(error or "") or "the connection is closed"
        if self._transport is not None:
            self._transport.abort()
        if self._watch is not None:
            self._watch.cancel()
        if self._on_lost is not None:
            self._on_lost(self)
        while self._calls:
            self._end(self._calls.popleft(), error or ConnectionError("the connection was closed"))

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # of the kind that reads and writes
        made: socket.socket | None = transport.get_extra_info("socket")
        if made is not None and made.family != socket.AF_UNIX:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING:
                self._take(reply)
        except hiredis.ProtocolError as error:
            self.close(ConnectionError(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        replies = self._calls[0].replies[-1:] if self._calls and not self._is_greeted else []
        if replies and isinstance(replies[0], ReplyError):
            # The server says why it refuses this connection: too many clients, for one.
            self.close(ConnectionError(str(replies[0])))
        else:
            self.close(exc or ConnectionError("the server closed the connection"))

    # The rest

    def _take(self, reply: Any) -> None:
        if not self._calls:
            if self._on_push is None:
                # A server that ends a connection may say why: too many clients, for one.
                is_error = isinstance(reply, ReplyError)
                self.close(ConnectionError(str(reply) if is_error else "the server sent an unexpected reply"))
            else:
                self._on_push(reply)
            return
        call = self._calls[0]
        call.replies.append(reply)
        if len(call.replies) == call.wanted:
            self._calls.popleft()
            self._ended_at = self._received_at
            self._is_greeted = True
            self._end(call, None)

    def _end(self, call: "_Call", error: Exception | None) -> None:
        if self.on_call_ended is not None:
            self.on_call_ended()
        if call.future.done():
            return
        if error is None:
            call.future.set_result(call.replies)
        else:
            call.future.set_exception(error)

    def _send(self) -> None:
        self._is_joining = False
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None and not self.closed.done():
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def _look(self) -> None:
        """One timer for all calls: the oldest one is the first to be late."""
        self._watch = None
        if not self._calls:
            return
        sent_at, now = self._calls[0].sent_at, self._loop.time()
        silent = max(sent_at, self._received_at) + self._answer_timeout
        longest = max(sent_at, self._ended_at) + _LONGEST * self._answer_timeout
        if silent <= now:
            self.close(LateReplyError(f"no reply within {self._answer_timeout:g} s"))
        elif longest <= now:
            self.close(LateReplyError(f"no whole reply within {_LONGEST * self._answer_timeout:g} s"))
        else:
            self._watch = self._loop.call_at(min(silent, longest), self._look)


class _Call:
    __slots__ = ("future", "replies", "sent_at", "wanted")

    def __init__(self, future: "asyncio.Future[list[Any]]", wanted: int, sent_at: float) -> None:
        self.future = future
        self.wanted = wanted
        self.sent_at = sent_at
        self.replies: list[Any] = []


def pack(commands: Sequence[Sequence[Any]]) -> bytes:
    """Commands as the server reads them."""
    packed = [hiredis.pack_command(tuple(command)) for command in commands]
    return packed[0] if len(packed) == 1 else b"".join(packed)


async def connect(
    target: Target,
    address: Address,
    *,
    on_lost: Callable[[Connection], None] | None = None,
    on_push: Callable[[Any], None] | None = None,
    extra_timeout: float = 0.0,
) -> Connection:
    """A connection that has introduced itself. `extra_timeout` is added to the time that a reply may take."""
    loop = asyncio.get_running_loop()
    greeting = _greeting(target)
    made: list[Connection] = []

    def new() -> Connection:
        made.append(
            Connection(target.settings.answer_timeout + extra_timeout, on_lost=on_lost, on_push=on_push)
        )
        return made[0]

    try:
        async with asyncio.timeout(target.settings.connect_timeout):
            if address.port:
                host = address.host if target.tls else None
                await loop.create_connection(
                    new, address.host, address.port, ssl=target.tls, server_hostname=host
                )
            else:
                await loop.create_unix_connection(new, address.host)
            for reply in await made[0].call(pack(greeting), len(greeting)):
                if isinstance(reply, ReplyError):
                    raise reply
    except BaseException as error:
        for connection in made:
            connection.close()
        if isinstance(error, TimeoutError):
            tls = "; TLS was tried, and a port without it does not answer" if target.tls else ""
            raise ConnectionError(
                f"no connection within {target.settings.connect_timeout:g} s{tls}"
            ) from None
        raise
    return made[0]


def _greeting(target: Target) -> list[tuple[str, ...]]:
    greeting: list[tuple[str, ...]] = []
    if target.password is not None:
        greeting.append(("AUTH", *([target.username] if target.username else []), target.password))
    if target.database:
        greeting.append(("SELECT", str(target.database)))
    return [*greeting, ("CLIENT", "SETNAME", target.client_name)]
