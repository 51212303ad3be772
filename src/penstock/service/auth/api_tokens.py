"""API tokens: created here, shown once, and stored as hashes."""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from penstock.core.errors import OptionError
from penstock.core.names import check_name
from penstock.core.payload import Description
from penstock.service.auth.bearer import Bearer
from penstock.service.auth.scopes import ALL, check_scopes, read_scopes
from penstock.service.auth.strict import refuse
from penstock.stores.protocol import HasClock, HasKeyValue
from penstock.stores.values import EVERYONE

NAMESPACE: Final = "api-tokens"
PREFIX: Final = "pst_"
KNOWN_SECONDS: Final = 4.0
"""How long an answer of the store is used again: a token that was revoked is good for no longer.

A stream or long poll, which looks once a second, ends within five.
"""
MOST_KNOWN: Final = 10_000
SUBJECT_CHARS: Final = 255
_TEXT: Final = re.compile(rf"{PREFIX}([a-z0-9]{{16}})_([A-Za-z0-9_-]{{43}})")
_PAGE: Final = 200
MOST: Final = 1_000
"""Tokens of one tenant, or of all operators together."""


class ApiToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored record of a token. `tenants` are those of an operator; times are Unix milliseconds."""

    id: str
    digest: str
    subject: str
    scopes: str
    tenant: str
    tenants: tuple[str, ...] = ()
    made_at: int = 0
    expires_at: int | None = None

    @property
    def bearer(self) -> Bearer:
        """The principal of the token."""
        return Bearer(self.tenant, self.subject, read_scopes(self.scopes.split(" ")), self.tenants)


class _Backend(HasKeyValue, HasClock, Protocol):
    """The parts of a store that this module uses."""


class ApiTokens:
    """The tokens of a store. What was found is known for KNOWN_SECONDS."""

    def __init__(self, store: _Backend, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, tuple[float, ApiToken]] = {}

    async def make(
        self,
        *,
        tenants: Sequence[str],
        subject: str,
        scopes: Sequence[str],
        seconds: float | None = None,
        operator: bool = False,
    ) -> tuple[str, ApiToken]:
        """A new token: its text, which is not kept, and what is."""
        if not 0 < len(subject) <= SUBJECT_CHARS or not subject.isprintable():
            raise OptionError("subject", subject, f"1 to {SUBJECT_CHARS} characters")
        names = tuple(each if operator and each == ALL else check_name("tenant", each) for each in tenants)
        if not names or (len(names) > 1 and not operator):
            raise OptionError("tenant", ", ".join(names) or "none", "one tenant, or an operator's list")
        owner = EVERYONE if operator else names[0]
        if await self._count(owner) >= MOST:
            raise _too_many()
        now = await self._store.clock.now()
        secret, name = secrets.token_urlsafe(32), secrets.token_hex(8)
        token = ApiToken(
            id=name,
            digest=_digest(secret),
            subject=subject,
            scopes=str(check_scopes("scope", scopes)),
            tenant=owner,
            tenants=names if operator else (),
            made_at=now,
            expires_at=None if seconds is None else now + round(seconds * 1000),
        )
        await self._store.key_value.put_entry(
            EVERYONE, NAMESPACE, name, msgspec.json.encode(token), expected=0
        )
        if await self._count(owner) > MOST:
            # Others were made at the same time; rather one too few than one too many.
            await self._store.key_value.delete_entry(EVERYONE, NAMESPACE, name)
            raise _too_many()
        return f"{PREFIX}{name}_{secret}", token

    async def bearer(self, text: str) -> Bearer:
        """The principal of a token; UnauthenticatedError unless the token is stored and has not expired."""
        parts = _TEXT.fullmatch(text)
        token = None if parts is None else await self._find(parts[1])
        if parts is None or token is None or not hmac.compare_digest(token.digest, _digest(parts[2])):
            # One answer for all: nobody learns which ids there are.
            refuse("no such API token, or it has expired")
        return token.bearer

    async def all(self, tenant: str | None = None) -> list[ApiToken]:
        """The records of all tokens, or of those of one tenant."""
        found: list[ApiToken] = []
        after = ""
        while page := await self._store.key_value.list_entries(EVERYONE, NAMESPACE, after=after, limit=_PAGE):
            found += [msgspec.json.decode(entry.body, type=ApiToken) for entry in page]
            after = page[-1].name
        return [each for each in found if tenant is None or tenant in (each.tenant, *each.tenants)]

    async def _count(self, owner: str) -> int:
        return sum(each.tenant == owner for each in await self.all())

    async def revoke(self, name: str) -> bool:
        """Revoke a token; False when there is none of that id."""
        self._known.pop(name, None)
        return await self._store.key_value.delete_entry(EVERYONE, NAMESPACE, check_name("id", name))

    async def _find(self, name: str) -> ApiToken | None:
        """The record of a token that is still valid."""
        now = self._clock()
        until, token = self._known.pop(name, (0.0, None))
        if token is None or now >= until:
            entry = await self._store.key_value.get_entry(EVERYONE, NAMESPACE, name)
            if entry is None:
                return None
            token = msgspec.json.decode(entry.body, type=ApiToken)
            left = KNOWN_SECONDS
            if token.expires_at is not None:
                left = min(left, (token.expires_at - await self._store.clock.now()) / 1000)
            if left <= 0:
                return None
            until = now + left
        if len(self._known) >= MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[name] = (until, token)
        return token


def _too_many() -> OptionError:
    return OptionError("tokens", Description(f"{MOST} of them"), f"at most {MOST} for a tenant: revoke some")


def _digest(secret: str) -> str:
    # Plain and fast: 256 random bits cannot be guessed, so nothing has to slow a guess down.
    return hashlib.sha256(secret.encode()).hexdigest()
