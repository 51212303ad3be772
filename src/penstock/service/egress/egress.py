"""Sends a request to a checked address and reads the status of its response."""

import asyncio
import email.utils
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.metadata import version
from typing import Final

import msgspec

from penstock.core.ranges import Address, why_not
from penstock.service.egress.errors import AddressRefusedError, EgressError
from penstock.service.egress.policy import EgressPolicy
from penstock.service.egress.resolver import Resolve, SystemResolver
from penstock.service.egress.target import Target, read_target

HEAD_BYTES: Final = 16_384
"""Bytes of a response that are read: status and headers, never its body."""
MOST_ADDRESSES: Final = 4
"""Tried one after the other when a connection cannot be made."""
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: .*)?")
_UNSAFE: Final = re.compile(r"[^\t -~]")


class EgressResponse(msgspec.Struct, frozen=True):
    """The response to a request. `retry_after` is what the receiver asked for, in seconds."""

    status: int
    seconds: float
    retry_after: float | None = None


class Egress:
    """Posts to targets that the policy allows.

    A name is resolved once for each request; all its addresses have to be allowed, and the connection goes to
    one of those, so that another answer of the name server a moment later changes nothing. Redirects are
    answers like any other and followed by nobody. No proxy is used, whatever the environment says.
    """

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self.policy = policy or EgressPolicy()
        self._resolve: Resolve = resolve or SystemResolver()
        self._given_trust = trust
        self._agent = f"penstock/{version('penstock')}"

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        # Made when it is first needed: reading all that the system trusts takes a while.
        return self._given_trust or ssl.create_default_context()

    def check(self, field: str, url: object) -> Target:
        """The target, as far as it can be judged without a name server; OptionError if it cannot be one."""
        return read_target(field, url, self.policy)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> EgressResponse:
        """Send the body; AddressRefusedError when it may not go there, EgressError when it got no answer."""
        target = self.check("url", url)
        head = self._head(target, headers, len(body))
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.policy.timeout):
                addresses = await self._addresses(target)
                reader, writer = await self._connected(target, addresses)
                try:
                    status, retry_after = await _exchanged(reader, writer, head + body)
                finally:
                    # No TLS goodbye: a receiver that does not take it would hold this up.
                    writer.transport.abort()
        except TimeoutError:
            raise EgressError(f"{target.host} did not answer within {self.policy.timeout:g} s") from None
        except ssl.SSLError as error:
            raise EgressError(f"{target.host} cannot be trusted: {_ssl_text(error)}") from None
        except OSError as error:
            raise EgressError(f"{target.host}: the connection broke: {_os_text(error)}") from None
        return EgressResponse(status, time.monotonic() - began, retry_after)

    async def _addresses(self, target: Target) -> list[Address]:
        """The addresses of the target; AddressRefusedError where one of them is not allowed."""
        found = [target.address] if target.address else await self._resolve(target.host, target.port)
        if not found:
            raise EgressError(f"the name {target.host} has no address")
        for address in found:
            if (why := why_not(address, self.policy.networks)) is not None:
                # Not the address: what a name means within this network is nobody's business.
                raise AddressRefusedError(
                    f"{target.host} is not on the public internet: its address is {why}"
                )
        return found

    async def _connected(
        self, target: Target, addresses: Sequence[Address]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        trust, name = (self._trust, target.host) if target.is_secure else (None, None)
        last: OSError | None = None
        for address in addresses[:MOST_ADDRESSES]:
            try:
                async with asyncio.timeout(self.policy.connect_timeout):
                    # An address, not the name: nobody resolves anything again.
                    return await asyncio.open_connection(
                        str(address), target.port, ssl=trust, server_hostname=name, limit=HEAD_BYTES
                    )
            except ssl.SSLError:
                raise
            except OSError as error:
                last = error
        raise EgressError(f"{target.host}: no connection to port {target.port}: {_os_text(last)}")

    def _head(self, target: Target, headers: Mapping[str, str], length: int) -> bytes:
        lines = {
            "host": target.authority,
            "user-agent": self._agent,
            "content-length": str(length),
            "connection": "close",
            **headers,
        }
        for name, value in lines.items():
            if _UNSAFE.search(name + value):
                raise EgressError(f"the header {name} has signs that cannot be sent")
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode("ascii")


async def _exchanged(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, float | None]:
    # Sent while reading: a receiver may answer before it has taken everything.
    sending = asyncio.create_task(_sent(writer, request))
    try:
        for _ in range(5):
            status, retry_after = await _answer_head(reader)
            if status >= 200:
                return status, retry_after
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
    raise EgressError("the answer does not begin: only interim ones came")


async def _sent(writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    # A connection that breaks is seen by the reader, together with what came before.
    with suppress(OSError):
        await writer.drain()


async def _answer_head(reader: asyncio.StreamReader) -> tuple[int, float | None]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise EgressError("the connection was closed before an answer came") from None
    except asyncio.LimitOverrunError:
        raise EgressError(f"the head of the answer is longer than {HEAD_BYTES} bytes") from None
    first, *lines = head.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None or status[1] == b"101":
        raise EgressError("the answer is not one of HTTP/1.1")
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"retry-after":
            return int(status[1]), _seconds(value.strip().decode("latin-1"))
    return int(status[1]), None


def _seconds(text: str) -> float | None:
    """A Retry-After, as seconds from now; None when it is neither a number nor a date."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        at = email.utils.parsedate_to_datetime(text)
        return max(0.0, at.timestamp() - time.time())
    except (ValueError, OverflowError, TypeError):
        return None


def _ssl_text(error: ssl.SSLError) -> str:
    return str(getattr(error, "verify_message", None) or error.reason or error)


def _os_text(error: OSError | None) -> str:
    if isinstance(error, TimeoutError):
        return "it takes too long"
    return getattr(error, "strerror", None) or str(error)
