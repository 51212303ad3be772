"""As little of an HTTP client as the benchmark needs, so that it costs next to nothing beside the service."""

import asyncio
from urllib.parse import urlsplit


class Client:
    """One connection; it is opened again where the service has closed it."""

    def __init__(self, address: str, token: str = "", peer: str = "127.0.0.1") -> None:
        found = urlsplit(address)
        self._host, self._port = found.hostname or "", found.port or 0
        self._peer = peer
        self._token = token
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection, opened if it is not."""
        if self._stream is None:
            self._stream = await asyncio.open_connection(self._host, self._port, local_addr=(self._peer, 0))
        return self._stream

    def close(self) -> None:
        """End the connection."""
        if self._stream is not None:
            self._stream[1].transport.abort()
            self._stream = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of an answer; OSError or EOFError when the connection ended instead."""
        try:
            reader, writer = await self.open()
            writer.write(
                f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
                f"authorization: Bearer {self._token}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            )
            writer.write(body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            answer = await reader.readexactly(length)
        except (OSError, EOFError, asyncio.CancelledError):
            self.close()
            raise
        if "connection: close" in head:
            self.close()
        return int(head[9:12]), answer
