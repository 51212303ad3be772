"""Authenticates a request by its one bearer token, a JWT or an API token."""

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import jwt

from penstock.service.auth import api_tokens
from penstock.service.auth.api_tokens import ApiTokens
from penstock.service.auth.bearer import Bearer
from penstock.service.auth.claims import bearer_of, check_times
from penstock.service.auth.development import DEVELOPMENT, DevelopmentKey
from penstock.service.auth.issuers import AUDIENCE, AuthFile, Issuer
from penstock.service.auth.keys import Key
from penstock.service.auth.sources import FixedKeys, IssuerKeys, Keys
from penstock.service.auth.strict import Unverified, read_token, refuse
from penstock.service.errors import UnauthenticatedError

TENANT_HEADER: Final = "penstock-tenant"
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] ([A-Za-z0-9._~+/=-]+)")
_JWS: Final = jwt.PyJWS()
MOST_VERIFIED: Final = 4_096
"""Tokens whose signature need not be checked again."""


class TokenAuthenticator:
    """Lets in who shows a token of one of the issuers, of the development key, or one of the store's own.

    An operator says with the header Penstock-Tenant whom a request is for.
    """

    def __init__(
        self,
        issuers: Sequence[tuple[Issuer, Keys]],
        tokens: ApiTokens | None = None,
        *,
        audience: str = AUDIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuers = {issuer.issuer: (issuer, keys) for issuer, keys in issuers}
        self._tokens = tokens
        self._audience = audience
        self._clock = clock
        self._verified: dict[bytes, tuple[Key, Unverified, Bearer]] = {}

    async def authenticate(self, headers: Mapping[str, str]) -> Bearer:
        """The principal of these headers, whose names are in small letters."""
        said = headers.get("authorization")
        if said is None:
            raise UnauthenticatedError("there is no Authorization header with a bearer token")
        found = _BEARER.fullmatch(said)
        if found is None:
            raise UnauthenticatedError("the Authorization header does not show one bearer token")
        bearer = await self.bearer(found[1])
        tenant = headers.get(TENANT_HEADER)
        return bearer if tenant is None else bearer.acting_for(tenant)

    async def bearer(self, token: str) -> Bearer:
        """The principal of a token; UnauthenticatedError when it is not accepted."""
        if token.startswith(api_tokens.PREFIX) and self._tokens is not None:
            return await self._tokens.bearer(token)
        digest = hashlib.sha256(token.encode()).digest()
        known, unverified, bearer = self._verified.get(digest, (None, None, None))
        if unverified is None:
            unverified = read_token(token)
        issuer, keys = self._issuers.get(unverified.issuer) or refuse("its issuer is not known")
        if unverified.alg not in issuer.family.algorithms:
            refuse("its alg is not one of its issuer's")
        key = await keys.find(unverified.kid, unverified.alg)
        if bearer is not None and key is known:
            # Seen before, with a key that its issuer still has: only time can have changed.
            check_times(unverified.claims, issuer, self._clock())
            return bearer
        try:
            _JWS.decode(token, key.material, algorithms=[unverified.alg])
        except (jwt.PyJWTError, ValueError, TypeError):
            refuse("its signature is not good")
        bearer = bearer_of(unverified.claims, issuer, self._audience, self._clock())
        self._remember(digest, key, unverified, bearer)
        return bearer

    def _remember(self, digest: bytes, key: Key, unverified: Unverified, bearer: Bearer) -> None:
        if digest not in self._verified and len(self._verified) >= MOST_VERIFIED:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = key, unverified, bearer

    async def close(self) -> None:
        """Stop fetching keys of issuers."""
        for _, keys in self._issuers.values():
            if isinstance(keys, IssuerKeys):
                await keys.close()


def authenticator_of(
    auth: AuthFile | None,
    tokens: ApiTokens | None,
    key: DevelopmentKey | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> TokenAuthenticator:
    """The authenticator for the issuers of a file, API tokens, and the development key if there is one."""
    issuers: list[tuple[Issuer, Keys]] = []
    if auth is not None:
        issuers += [(issuer, IssuerKeys(issuer)) for issuer in auth.issuers]
    if key is not None:
        issuers.append((DEVELOPMENT, FixedKeys(key.keys)))
    return TokenAuthenticator(
        issuers, tokens, audience=AUDIENCE if auth is None else auth.audience, clock=clock
    )
