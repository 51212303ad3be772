"""The connections to one service: bounded, and used again while they are fresh."""

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from penstock.stores.call_limit import CallLimit
from penstock.stores.remote.address import Target
from penstock.stores.remote.connection import Answer, Connection

_AGENT: Final = f"penstock/{version('penstock')}"


class Pool:
    """Gives each call a connection of its own for the time of the call: the one used last, or a new one."""

    def __init__(self, target: Target) -> None:
        self._target = target
        settings = target.pool
        self._call_limit = CallLimit(
            settings.connections, settings.pool_timeout, f"no connection to {target.shown} was free"
        )
        self._idle: list[Connection] = []
        self._connections: set[Connection] = set()
        self._heads: dict[str, bytes] = {}
        self._is_closed = False

    async def call(self, name: str, body: bytes) -> Answer:
        """The answer to `POST …/v1/store/{name}`."""
        await self._call_limit.acquire()
        connection: Connection | None = None
        try:
            connection = self._fresh() or await self.connect()
            return await connection.call(self.head(name, len(body)), body, self._target.pool.answer_timeout)
        finally:
            self._call_limit.release()
            if connection is not None:
                self._give_back(connection)

    async def connect(self, on_push: Callable[[bytes], None] | None = None) -> Connection:
        """A new connection. With `on_push` it is one that the service sends notifications on."""
        target = self._target
        seconds = target.pool.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(on_push),
                    target.host,
                    target.port,
                    ssl=target.tls,
                    server_hostname=target.host if target.tls else None,
                )
        except TimeoutError:
            raise ConnectionError(f"no connection within {seconds:g} s") from None
        self._connections.add(connection)
        connection.closed.add_done_callback(lambda _: self._connections.discard(connection))
        if self._is_closed:
            connection.close("the store was closed")
        return connection

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
        connections = list(self._connections)
        for connection in connections:
            connection.close("the store was closed")
        if connections:
            await asyncio.wait([connection.closed for connection in connections])

    def _fresh(self) -> Connection | None:
        oldest = asyncio.get_running_loop().time() - self._target.pool.idle_timeout
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and connection.quiet_since > oldest:
                return connection
            connection.close()
        return None

    def _give_back(self, connection: Connection) -> None:
        if connection.is_usable and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()
