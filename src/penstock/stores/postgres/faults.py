"""What PostgreSQL's errors mean to a caller."""

from enum import Enum, auto
from typing import Final

import msgspec
import psycopg

from penstock.core.errors import (
    ConfigError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreReadOnlyError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from penstock.core.store_url import hide


class Proof(Enum):
    """What a store has been seen to do: once it did, a refusal of the same is a fault that passes."""

    LOGIN = auto()
    WRITE = auto()


class _Meaning(msgspec.Struct, frozen=True):
    kind: type[PenstockError]
    text: str
    passes_after: Proof | None = None


_LOGIN: Final = _Meaning(ConfigError, "refused the user name or the password of the url", Proof.LOGIN)
_NO_DATABASE: Final = _Meaning(ConfigError, "does not know the database or the user of the url", Proof.LOGIN)
_NO_TABLES: Final = _Meaning(
    StoreFormatError, "has no Penstock tables in that schema, or not all of them", Proof.LOGIN
)
_POOLER: Final = _Meaning(
    ConfigError,
    "hands its connections around, as a pooler in transaction mode does: add pooler=transaction to the url, "
    "or name the server itself",
)
_OTHER_TABLES: Final = _Meaning(
    StoreUnavailableError, "has other tables than this connection knows; nothing was changed"
)
_BY_CODE: Final[dict[str, _Meaning]] = {
    "28": _LOGIN,
    "3D": _Meaning(ConfigError, "has no such database", Proof.LOGIN),
    "3F": _NO_TABLES,
    "42P01": _NO_TABLES,
    "42501": _Meaning(ConfigError, "does not let this user do what Penstock needs", Proof.WRITE),
    "42704": _Meaning(ConfigError, "does not know the role, or another thing that was named"),
    "42P05": _POOLER,
    "26000": _POOLER,
    "57014": _Meaning(StoreTimeoutError, "did not answer in time"),
    "55P03": _Meaning(StoreTimeoutError, "kept rows or tables locked for too long"),
    "40": _Meaning(StoreUnavailableError, "ended the call in favour of another one; nothing was changed"),
    "53100": _Meaning(StoreFullError, "has no room left on its disk; nothing was written"),
    "53": _Meaning(StoreUnavailableError, "has no room for another connection, or no memory"),
    "25006": _Meaning(
        StoreReadOnlyError, "is a standby or read-only: the url has to name the primary", Proof.WRITE
    ),
    "57P": _Meaning(StoreUnavailableError, "is going down or starting up"),
    "08": _Meaning(StoreUnavailableError, "cannot be reached"),
    "58": _Meaning(StoreUnavailableError, "could not read or write its files"),
}
"""By the longest beginning of the error's code."""

# An error at the connection has no code: the driver only has the server's text.
_BY_TEXT: Final[dict[str, _Meaning]] = {
    "unsupported startup parameter": _Meaning(
        ConfigError,
        "is a pooler that takes no settings with a connection: add pooler=transaction to the url, or name "
        "the server itself",
    ),
    "authentication failed": _LOGIN,
    "no password supplied": _LOGIN,
    "no pg_hba.conf entry": _LOGIN,
    "is not permitted to log in": _LOGIN,
    "permission denied to set role": _Meaning(ConfigError, "does not let the user of the url act as ?role=…"),
    "permission denied for database": _LOGIN,
    "does not exist": _NO_DATABASE,
}
_WALLS: Final = ("was not admitted", "row-level security policy")
"""What a role is told about a tenant that is not its own. That does not pass."""


class Faults:
    """Translates for one store.

    A server that refuses the login or every write when it is first used is the wrong one. If it does so after
    the store was open, it was demoted or locked, a password or a right is being changed, or the tables are
    being put back: that passes, and callers that can wait should.
    """

    def __init__(self, server: str, secrets: tuple[str, ...] = ()) -> None:
        self._server = server
        self._secrets = secrets
        self.proven: frozenset[Proof] = frozenset()

    def translate(self, error: psycopg.Error | OSError) -> PenstockError:
        """The error of Penstock's for this one of the driver, without secrets."""
        text = " ".join(hide(str(error), self._secrets).split())
        meaning = meaning_of(error)
        if meaning is None:
            if isinstance(error, psycopg.OperationalError | OSError):
                return StoreUnavailableError(f"{self._server} cannot be reached: {text}")
            return StoreError(f"{self._server} failed: {text}")
        if meaning.passes_after in self.proven and not any(wall in text for wall in _WALLS):
            return StoreUnavailableError(f"{self._server} worked before and now {meaning.text} ({text})")
        return meaning.kind(f"{self._server} {meaning.text} ({text})")


def is_outdated(error: Exception) -> bool:
    """True where the tables were migrated since the statement was prepared on this connection."""
    return (
        isinstance(error, psycopg.errors.FeatureNotSupported)
        and error.diag.source_function == "RevalidateCachedQuery"
    )


def meaning_of(error: Exception) -> _Meaning | None:
    """The meaning of the error's code, or of its text where it has none."""
    if is_outdated(error):
        return _OTHER_TABLES
    code = getattr(error, "sqlstate", None) or ""
    for length in (5, 3, 2):
        if code[:length] in _BY_CODE and len(code) >= length:
            return _BY_CODE[code[:length]]
    if isinstance(error, psycopg.OperationalError):
        return next((meaning for text, meaning in _BY_TEXT.items() if text in str(error)), None)
    return None
