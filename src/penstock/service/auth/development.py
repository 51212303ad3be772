"""A key for development: the holder of its text can make tokens for every tenant."""

import base64
import binascii
import secrets
from collections.abc import Sequence
from typing import Final

import jwt

from penstock.core.errors import ConfigError, OptionError
from penstock.core.names import check_name
from penstock.service.auth.issuers import AUDIENCE, Family, Issuer
from penstock.service.auth.keys import Key, KeySet
from penstock.service.auth.scopes import ALL, check_scopes

PREFIX: Final = "psk_"
_BYTES: Final = 32
_ALGORITHM: Final = "HS256"
DEVELOPMENT: Final = Issuer(
    issuer="penstock-development", family=Family.HS, jwks="-", operators=True, max_lifetime=366 * 86_400.0
)


class DevelopmentKey:
    """A secret of 256 bits, written as `psk_…`."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return "DevelopmentKey(…)"

    @classmethod
    def make(cls) -> "DevelopmentKey":
        """A new key."""
        return cls(secrets.token_bytes(_BYTES))

    @classmethod
    def read(cls, text: str) -> "DevelopmentKey":
        """The key behind its text; ConfigError, without the text, when it is none."""
        try:
            secret = base64.urlsafe_b64decode(text.removeprefix(PREFIX) + "=")
        except (binascii.Error, ValueError):
            secret = b""
        if not text.startswith(PREFIX) or len(secret) != _BYTES:
            raise ConfigError(
                f"the development key: found something else, wanted {PREFIX} and 43 more characters"
            )
        return cls(secret)

    @property
    def text(self) -> str:
        """The text of the key."""
        return PREFIX + base64.urlsafe_b64encode(self._secret).rstrip(b"=").decode()

    @property
    def keys(self) -> KeySet:
        """The keys that verify its tokens."""
        return KeySet((Key(None, frozenset({_ALGORITHM}), self._secret),))

    def mint(
        self,
        *,
        tenants: Sequence[str],
        subject: str,
        scopes: Sequence[str],
        seconds: float,
        now: float,
        audience: str = AUDIENCE,
        operator: bool = False,
    ) -> str:
        """A token for one tenant, or for an operator of some."""
        if not 1 <= seconds <= DEVELOPMENT.max_lifetime:
            raise OptionError("lifetime", seconds, f"1 to {DEVELOPMENT.max_lifetime:g} seconds")
        names = [each if operator and each == ALL else check_name("tenant", each) for each in tenants]
        if not names or (len(names) > 1 and not operator):
            raise OptionError("tenant", ", ".join(names) or "none", "one tenant, or an operator's list")
        whose = {"tenants": names} if operator else {"tid": names[0]}
        claims = {
            "iss": DEVELOPMENT.issuer,
            "aud": audience,
            "sub": subject,
            "iat": int(now),
            "exp": int(now + seconds),
            "scope": str(check_scopes("scope", scopes)),
            **whose,
        }
        return jwt.encode(claims, self._secret, algorithm=_ALGORITHM)
