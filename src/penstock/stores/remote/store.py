"""The store: each call of the protocol is one request to the service that has the store."""

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final

import msgspec

from penstock.core.errors import PayloadError, PenstockError, StoreFormatError, StoreVersionError
from penstock.core.job import QueueRef
from penstock.core.payload import Words
from penstock.stores.claim_limits import CLAIM_LIMITS
from penstock.stores.projection import ProjectedTime
from penstock.stores.protocol import Bell, QueueBell
from penstock.stores.remote.address import parse
from penstock.stores.remote.faults import Faults
from penstock.stores.remote.following import first_of, joined, next_of
from penstock.stores.remote.line import Answer, Line
from penstock.stores.remote.pool import Pool
from penstock.stores.remote.wakeups import Subscriber
from penstock.stores.values import Topic
from penstock.stores.wire import CALLS, METHODS, NOT_CARRIED, Call, Hello

_BELLS: Final = "bells"
_HELLO: Final = "hello"
_LISTS: Final = {"enqueue": "jobs", "settle": "settlements", "progress": "reports"}
"""Calls whose items carry payloads, and the list that these stand in."""


class RemoteStore:
    """A store behind a service. `token` wins over one that the url or the settings have.

    Its methods are those of the protocol, made from the table that the service answers by.
    """

    keeps_call_order: ClassVar[bool] = False
    is_server: ClassVar[bool] = True
    numbers_in_order: bool = False
    """As the service's store says, once this one is open."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self._url = url
        self._token = token
        self._target = parse(url, token)
        self._faults = Faults(self._target)
        self._pool: Pool | None = None
        self._largest = 0
        self._projected = ProjectedTime()
        self._subscriber = Subscriber(self._listen)

    def __repr__(self) -> str:
        return f"RemoteStore({self._target.shown!r})"

    async def open(self) -> None:
        """Connect, and see that there is a service which accepts the token."""
        self._pool = Pool(self._target)
        try:
            body = await self._ask(_HELLO, b"")
            try:
                hello = msgspec.msgpack.decode(body, type=Hello)
            except msgspec.MsgspecError:
                raise StoreFormatError(f"{self._target.shown} is not a service of Penstock") from None
        except BaseException:
            await self.close()
            raise
        self.numbers_in_order = hello.numbers_in_order
        self._largest = hello.body_bytes
        self._faults.is_proven = True

    async def close(self) -> None:
        """Close every connection."""
        await self._subscriber.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def twin(self) -> "RemoteStore":
        """Another client of the same service."""
        twin = RemoteStore(self._url, token=self._token)
        # What one of them was told holds for the process.
        twin._projected = self._projected
        return twin

    def bell(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Bell]:
        """Rung by the service's stream."""
        return self._subscriber.hang(queue, topic)

    def queue_bell(self, tenant: str) -> AbstractAsyncContextManager[QueueBell]:
        """Rung by the service's stream for those queues that the token is for."""
        return self._subscriber.hang_for_all(tenant)

    async def _call(self, call: Call, tenant: str | None, queue: str | None, given: dict[str, Any]) -> Any:
        if call.name == "claim":
            given = {**given, "floor_us": self._projected.floor_us(given.get("floor_us", 0))}
            if given.get("limits") == CLAIM_LIMITS:
                # A service of an older version knows no such argument.
                del given["limits"]
        found, size = await self._part(call, tenant, queue, first_of(call.name, given))
        while (following := next_of(call.name, given, found, size)) is not None:
            part, size = await self._part(call, tenant, queue, first_of(call.name, following))
            found = joined(found, part)
            if not part:
                break
        return found

    async def _part(
        self, call: Call, tenant: str | None, queue: str | None, given: dict[str, Any]
    ) -> tuple[Any, int]:
        """The answer to one request, and its size."""
        body = call.encode(tenant, queue, given)
        if len(body) > self._largest:
            return await self._in_parts(call, tenant, queue, given, len(body)), 0
        came = await self._ask(call.name, body)
        try:
            answer = call.decode_answer(came)
        except msgspec.MsgspecError as error:
            raise StoreVersionError(
                f"the service at {self._target.shown} is another version: its answer to {call.name} "
                f"cannot be read ({error})"
            ) from None
        if call.name == "claim" and answer.now_us:
            self._projected.told(answer.now_us, given["floor_us"])
        if call.name == "info":
            # The service says what its store is, and nobody but us knows the way to it.
            answer = msgspec.structs.replace(answer, url=self._target.shown)
        return answer, len(came)

    async def _in_parts(
        self, call: Call, tenant: str | None, queue: str | None, given: dict[str, Any], size: int
    ) -> Any:
        """A call that is too large for the service as several: each of its items is a matter of its own."""
        name = _LISTS.get(call.name)
        if name is None or len(given[name]) < 2 or given.get("spawns"):
            wanted = f"at most {self._largest} bytes, which the service takes in one request"
            raise PayloadError(name or call.name, Words(f"{size} bytes"), wanted)
        half = len(given[name]) // 2
        parts = (given[name][:half], given[name][half:])
        answers = [await self._call(call, tenant, queue, {**given, name: part}) for part in parts]
        return [*answers[0], *answers[1]]

    async def _ask(self, name: str, body: bytes) -> bytes:
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
        return self._good(answer).body

    async def _listen(self, body: bytes, heard: Callable[[bytes], None]) -> Line:
        pool = self._opened()
        line = await pool.dial(heard)
        try:
            head = pool.head(_BELLS, len(body))
            self._good(await line.call(head, body, self._target.numbers.answer_timeout))
        except BaseException:
            line.close()
            raise
        return line

    def _opened(self) -> Pool:
        if self._pool is None:
            raise RuntimeError("the store is not open")
        return self._pool

    def _good(self, answer: Answer) -> Answer:
        if answer.status != 200:
            raise self._faults.refused(answer)
        return answer


def _method(call: Call, method: Callable[..., Any]) -> Callable[..., Any]:
    """The call as a method, with the signature that it has in the protocol."""
    names = list(inspect.signature(method).parameters)[1:]
    # What a call is about stands first, and travels beside its arguments.
    has_subject = call.scope != "store" and names[0] in ("queue", "tenant")
    rest = names[1:] if has_subject else names

    @functools.wraps(method)
    async def calling(self: RemoteStore, *args: Any, **given: Any) -> Any:
        tenant: str | None = None
        queue: str | None = None
        if has_subject:
            subject, args = (given.pop(names[0]), args) if names[0] in given else (args[0], args[1:])
            tenant, queue = (subject.tenant, subject.name) if call.scope == "queue" else (subject, None)
        if len(args) > len(rest):
            raise TypeError(f"{call.name} takes {len(names)} arguments")
        if args:
            given |= zip(rest, args, strict=False)
        if call.name == "put_schedule":
            tenant = given["schedule"].queue.tenant
        carried = {name: value for name, value in given.items() if name not in NOT_CARRIED}
        return await self._call(call, tenant, queue, carried)

    return calling


for _each in CALLS.values():
    setattr(RemoteStore, _each.name, _method(_each, METHODS[_each.name]))
