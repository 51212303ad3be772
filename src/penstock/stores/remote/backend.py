"""What all parts of the remote store hold: the connections to the service, and how a call travels there."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.core.errors import PayloadError, PenstockError, StoreFormatError, StoreVersionError
from penstock.core.job import QueueRef
from penstock.core.payload import Description
from penstock.stores.projection import ProjectedTime
from penstock.stores.remote.address import Target
from penstock.stores.remote.connection import Answer, Connection
from penstock.stores.remote.faults import Faults
from penstock.stores.remote.pool import Pool
from penstock.stores.wire import CALLS, DEFAULTS, Hello

_SUBSCRIPTIONS: Final = "subscriptions"
_HELLO: Final = "hello"
_REQUIRED: Final = object()


class _TooLargeError(PayloadError):
    """The service would not take the request."""


class Backend:
    """Sends each call of the protocol to the service as one message."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.projected = ProjectedTime()
        self._faults = Faults(target)
        self._pool: Pool | None = None
        self._most_bytes = 0

    async def open(self) -> Hello:
        """Connect, and see that there is a service which accepts the token."""
        self._pool = Pool(self.target)
        try:
            body = await self._post(_HELLO, b"")
            try:
                hello = msgspec.msgpack.decode(body, type=Hello)
            except msgspec.MsgspecError:
                raise StoreFormatError(f"{self.target.shown} is not a service of Penstock") from None
        except BaseException:
            await self.close()
            raise
        self._most_bytes = hello.body_bytes
        self._faults.is_proven = True
        return hello

    async def close(self) -> None:
        """Close every connection."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def call(self, name: str, subject: QueueRef | str | None, /, **arguments: Any) -> Any:
        """The answer to a call about a queue, a tenant, or the whole store."""
        answer, _ = await self.call_sized(name, subject, **arguments)
        return answer

    async def call_sized(
        self, name: str, subject: QueueRef | str | None, /, **arguments: Any
    ) -> tuple[Any, int]:
        """The answer to a call, and its size in bytes."""
        call, defaults = CALLS[name], DEFAULTS[name]
        # A service of an older version may not know an argument: one that has its default is not sent.
        sent = {key: value for key, value in arguments.items() if value != defaults.get(key, _REQUIRED)}
        if isinstance(subject, QueueRef):
            body = call.encode(subject.tenant, subject.name, sent)
        else:
            body = call.encode(subject, None, sent)
        if len(body) > self._most_bytes:
            wanted = f"at most {self._most_bytes} bytes, which the service takes in one request"
            raise _TooLargeError(name, Description(f"{len(body)} bytes"), wanted)
        came = await self._post(name, body)
        try:
            return call.decode_answer(came), len(came)
        except msgspec.MsgspecError as error:
            raise StoreVersionError(
                f"the service at {self.target.shown} is another version: its answer to {name} "
                f"cannot be read ({error})"
            ) from None

    async def call_in_parts(
        self, name: str, queue: QueueRef, field: str, items: Sequence[Any], /, **arguments: Any
    ) -> list[Any]:
        """The answers to a list of items. One that is too large for the service travels as several calls."""
        try:
            answers: list[Any] = await self.call(name, queue, **{field: items}, **arguments)
            return answers
        except _TooLargeError as error:
            if len(items) < 2:
                raise PayloadError(field, error.found, error.wanted) from None
        half = len(items) // 2
        first = await self.call_in_parts(name, queue, field, items[:half], **arguments)
        return [*first, *await self.call_in_parts(name, queue, field, items[half:], **arguments)]

    async def listen(self, body: bytes, on_push: Callable[[bytes], None]) -> Connection:
        """A connection on which the service sends notifications as they come."""
        pool = self._opened()
        connection = await pool.connect(on_push)
        try:
            head = pool.head(_SUBSCRIPTIONS, len(body))
            self._checked(await connection.call(head, body, self.target.pool.answer_timeout))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _post(self, name: str, body: bytes) -> bytes:
        pool = self._opened()
        try:
            answer = await pool.call(name, body)
            if answer.status == 401 and pool.renew_token():
                answer = await pool.call(name, body)
        except PenstockError:
            # Some are system errors too.
            raise
        except OSError as error:
            raise self._faults.lost(error) from error
        return self._checked(answer).body

    def _opened(self) -> Pool:
        if self._pool is None:
            raise RuntimeError("the store is not open")
        return self._pool

    def _checked(self, answer: Answer) -> Answer:
        if answer.status != 200:
            raise self._faults.refused(answer)
        return answer
