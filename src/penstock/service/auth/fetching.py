"""Gets the text of a key set: from a file, or from the url of an issuer without following it elsewhere."""

import asyncio
import http.client
import ssl
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock.core.errors import ConfigError
from penstock.service.auth.keys import SET_BYTES

TIMEOUT: Final = 5.0
_CHUNK: Final = 16_384


async def fetch(place: str) -> bytes:
    """The text at a url or path, within a few seconds; OSError or ConfigError when it cannot be had."""
    async with asyncio.timeout(TIMEOUT):
        return await asyncio.to_thread(_of_url if "://" in place else _of_file, place)


def _of_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(SET_BYTES + 1)


def _of_url(url: str) -> bytes:
    give_up = time.monotonic() + TIMEOUT
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT)
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET", path, headers={"accept": "application/json", "connection": "close"})
        with connection.getresponse() as answer:
            if answer.status != http.client.OK:
                raise ConfigError(
                    f"the keys of an issuer: found status {answer.status}, wanted 200 at {host}"
                )
            found = b""
            # Piece by piece: what comes a byte at a time ends too.
            while len(found) <= SET_BYTES and time.monotonic() < give_up:
                piece = answer.read1(_CHUNK)
                if not piece:
                    return found
                found += piece
    except http.client.HTTPException as error:
        raise ConfigError(
            f"the keys of an issuer: {host} does not answer as HTTP: {type(error).__name__}"
        ) from None
    finally:
        connection.close()
    raise ConfigError(
        f"the keys of an issuer: found more than {SET_BYTES} bytes or {TIMEOUT:g} s of them at {host}"
    )
