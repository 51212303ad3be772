"""The connections to one service: bounded, and used again while they are fresh."""

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from penstock.stores.gate import Gate
from penstock.stores.remote.address import Target
from penstock.stores.remote.line import Answer, Line

_AGENT: Final = f"penstock/{version('penstock')}"


class Pool:
    """Gives each call a connection of its own for the time of the call: the one used last, or a new one."""

    def __init__(self, target: Target) -> None:
        self._target = target
        numbers = target.numbers
        self._gate = Gate(
            numbers.connections, numbers.pool_timeout, f"no connection to {target.shown} was free"
        )
        self._idle: list[Line] = []
        self._lines: set[Line] = set()
        self._heads: dict[str, bytes] = {}
        self._is_closed = False

    async def call(self, name: str, body: bytes) -> Answer:
        """The answer to `POST …/v1/store/{name}`."""
        await self._gate.enter()
        line: Line | None = None
        try:
            line = self._fresh() or await self.dial()
            return await line.call(self.head(name, len(body)), body, self._target.numbers.answer_timeout)
        finally:
            self._gate.leave()
            if line is not None:
                self._leave(line)

    async def dial(self, heard: Callable[[bytes], None] | None = None) -> Line:
        """A new connection."""
        target = self._target
        seconds = target.numbers.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                _, line = await asyncio.get_running_loop().create_connection(
                    lambda: Line(heard),
                    target.host,
                    target.port,
                    ssl=target.tls,
                    server_hostname=target.host if target.tls else None,
                )
        except TimeoutError:
            raise ConnectionError(f"no connection within {seconds:g} s") from None
        self._lines.add(line)
        line.closed.add_done_callback(lambda _: self._lines.discard(line))
        if self._is_closed:
            line.close("the store was closed")
        return line

    def head(self, name: str, size: int) -> bytes:
        """The head of a request."""
        start = self._heads.get(name)
        if start is None:
            token = self._target.token.text
            lines = [
                f"POST {self._target.path}/v1/store/{name} HTTP/1.1",
                f"host: {self._target.authority}",
                f"user-agent: {_AGENT}",
                "content-type: application/msgpack",
                *([] if token is None else [f"authorization: Bearer {token}"]),
                "content-length: ",
            ]
            start = self._heads[name] = "\r\n".join(lines).encode("ascii")
        return b"%b%d\r\n\r\n" % (start, size)

    def renew_token(self) -> bool:
        """True when there is another token to try."""
        self._heads.clear()
        return self._target.token.renew()

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        self._is_closed = True
        lines = list(self._lines)
        for line in lines:
            line.close("the store was closed")
        if lines:
            await asyncio.wait([line.closed for line in lines])

    def _fresh(self) -> Line | None:
        oldest = asyncio.get_running_loop().time() - self._target.numbers.idle_timeout
        while self._idle:
            line = self._idle.pop()
            if line.is_usable and line.quiet_since > oldest:
                return line
            line.close()
        return None

    def _leave(self, line: Line) -> None:
        if line.is_usable and not self._is_closed:
            self._idle.append(line)
        else:
            line.close()
