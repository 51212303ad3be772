"""Sources of keys while the service runs: fetched again now and then, never trusted for too long."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ClassVar, Final, Protocol

from penstock.core.errors import ConfigError
from penstock.service.auth.fetching import fetch as fetched
from penstock.service.auth.issuers import Issuer
from penstock.service.auth.keys import Key, KeySet, read_key_set
from penstock.service.auth.strict import refuse
from penstock.service.errors import ServiceError

COOLDOWN: Final = 30.0
"""Seconds between two fetches of keys, whatever key names tokens make up."""
_log: Final = logging.getLogger("penstock.service")


class IssuerUnavailableError(ServiceError):
    """The keys of the issuer cannot be fetched, so the token can be neither accepted nor refused."""

    status: ClassVar[int] = 503
    slug: ClassVar[str] = "issuer-unavailable"
    title: ClassVar[str] = "The issuer of the token cannot be reached"

    @property
    def headers(self) -> dict[str, str]:
        """The header that says when to retry."""
        return {"retry-after": str(int(COOLDOWN))}


class Keys(Protocol):
    """Finds the key that a token names."""

    async def find(self, kid: str | None, alg: str) -> Key:
        """The key; UnauthenticatedError when there is none, IssuerUnavailableError when nobody can say."""
        ...


class FixedKeys:
    """Keys that never change."""

    def __init__(self, keys: KeySet) -> None:
        self._keys = keys

    async def find(self, kid: str | None, alg: str) -> Key:
        """The key of that name."""
        return self._keys.find(kid, alg) or refuse("its key is not known")


class IssuerKeys:
    """The keys of an issuer, from its url or file.

    They are asked for when there are none, when they are older than `refresh` (and go on being used
    meanwhile), and when a token names a key that is not among them. After `keep` seconds without an answer
    every token is refused. Questions are at least COOLDOWN apart, and never two at once.
    """

    def __init__(
        self,
        issuer: Issuer,
        *,
        fetch: Callable[[str], Awaitable[bytes]] = fetched,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._keys: KeySet | None = None
        self._since = 0.0
        self._asked: float | None = None
        self._asking: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, alg: str) -> Key:
        """The key, asked for again where that may help."""
        key = self._find(kid, alg)
        if key is None or self._age >= self._issuer.refresh:
            asking = self._ask()
            if key is None and asking is not None:
                await asyncio.shield(asking)
                key = self._find(kid, alg)
        if key is None and not self._is_good:
            raise IssuerUnavailableError("the keys of the token's issuer cannot be had at this time")
        return key or refuse("its key is not known")

    async def close(self) -> None:
        """Stop fetching."""
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking

    def _find(self, kid: str | None, alg: str) -> Key | None:
        return self._keys.find(kid, alg) if self._keys is not None and self._is_good else None

    @property
    def _age(self) -> float:
        return self._clock() - self._since

    @property
    def _is_good(self) -> bool:
        return self._keys is not None and self._age < self._issuer.keep

    def _ask(self) -> asyncio.Task[None] | None:
        """The fetch under way, begun if it is time; None when it is too early for another."""
        if self._asking is not None and not self._asking.done():
            return self._asking
        now = self._clock()
        if self._asked is not None and now - self._asked < COOLDOWN:
            return None
        self._asked = now
        self._asking = asyncio.create_task(self._refresh())
        return self._asking

    async def _refresh(self) -> None:
        began = self._clock()
        try:
            self._keys = read_key_set(await self._fetch(self._issuer.jwks), self._issuer.family)
            self._since = began
        except (OSError, TimeoutError, ConfigError) as error:
            # What there was stays: an answer that cannot be used is no better than none.
            _log.warning("keys of issuer %s not had: %s", self._issuer.issuer, error)
