"""When a reply counts as late, by a clock that is turned: nobody waits here."""

import asyncio
from typing import Any

import pytest

from penstock.stores.redis.connection import Connection, LateReplyError, pack

TIMEOUT = 5.0
PING = pack([("PING",)])


class TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be turned."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Deaf(asyncio.Transport):
    """Takes what is written."""

    def write(self, data: Any) -> None: ...

    def abort(self) -> None: ...


def test_a_reply_that_keeps_coming_is_not_late() -> None:
    """Each piece starts the time anew."""

    async def call(loop: TurnedLoop, connection: Connection) -> list[Any]:
        answer = connection.call(PING, 1)
        connection.data_received(b"$6\r\n")
        for piece in (b"ab", b"cd", b"ef"):
            await turn(loop, 0.8 * TIMEOUT)
            connection.data_received(piece)
        connection.data_received(b"\r\n")
        return await answer

    assert run(call) == [b"abcdef"]


def test_a_reply_that_stops_half_way_is_late() -> None:
    """So much after its last piece."""

    async def call(loop: TurnedLoop, connection: Connection) -> list[Any]:
        answer = connection.call(PING, 1)
        await turn(loop, 0.8 * TIMEOUT)
        connection.data_received(b"$6\r\nab")
        await turn(loop, 0.8 * TIMEOUT)
        assert not answer.done()
        await turn(loop, 0.4 * TIMEOUT)
        return await answer

    with pytest.raises(LateReplyError, match="no reply within 5 s"):
        run(call)


def test_a_reply_cannot_keep_coming_for_ever() -> None:
    """The others on the connection wait for it, heartbeats among them."""

    async def call(loop: TurnedLoop, connection: Connection) -> list[Any]:
        answer = connection.call(PING, 1)
        connection.data_received(b"$60\r\n")
        while not answer.done():
            await turn(loop, 0.8 * TIMEOUT)
            connection.data_received(b"a")
        return await answer

    with pytest.raises(LateReplyError, match="no whole reply within 15 s"):
        run(call)


def test_the_time_of_a_reply_begins_when_the_one_before_has_ended() -> None:
    """Calls that share a connection do not pay for each other."""

    async def call(loop: TurnedLoop, connection: Connection) -> list[Any]:
        answers = [connection.call(PING, 1) for _ in range(6)]
        for _ in answers:
            await turn(loop, 0.8 * TIMEOUT)
            connection.data_received(b"+PONG\r\n")
        return [reply for answer in answers for reply in await answer]

    assert run(call) == [b"PONG"] * 6


def run(call: Any) -> list[Any]:
    """What the call on a connection of a turned loop brings."""
    loop = TurnedLoop()

    async def on_line() -> list[Any]:
        connection = Connection(TIMEOUT)
        connection.connection_made(Deaf())
        answer: list[Any] = await call(loop, connection)
        return answer

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(on_line())


async def turn(loop: TurnedLoop, seconds: float) -> None:
    """Let so much time pass, and all that is due with it."""
    loop.ahead += seconds
    for _ in range(3):
        await asyncio.sleep(0)
