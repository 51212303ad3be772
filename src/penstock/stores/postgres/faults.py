"""What PostgreSQL's errors mean to a caller."""

from typing import Final

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

_BY_CODE: Final[dict[str, tuple[type[PenstockError], str]]] = {
    "28": (ConfigError, "refused the user name or the password of the url"),
    "3D": (ConfigError, "has no such database"),
    "3F": (StoreFormatError, "has no Penstock tables in that schema"),
    "42P01": (StoreFormatError, "has no Penstock tables in that schema, or not all of them"),
    "42501": (ConfigError, "does not let this user do what Penstock needs"),
    "57014": (StoreTimeoutError, "did not answer in time"),
    "55P03": (StoreTimeoutError, "kept rows locked for too long"),
    "40": (StoreUnavailableError, "ended the call in favour of another one; nothing was changed"),
    "53100": (StoreFullError, "has no room left on its disk; nothing was written"),
    "53": (StoreUnavailableError, "has no room for another connection, or no memory"),
    "25006": (StoreReadOnlyError, "is a standby or read-only: the url has to name the primary"),
    "57P": (StoreUnavailableError, "is going down or starting up"),
    "08": (StoreUnavailableError, "cannot be reached"),
    "58": (StoreUnavailableError, "could not read or write its files"),
}
"""By the longest beginning of the error's code."""


def translated(error: psycopg.Error, place: str, secrets: tuple[str, ...]) -> PenstockError:
    """The same failure in Penstock's words, without secrets."""
    said = " ".join(str(error).split())
    for secret in secrets:
        said = said.replace(secret, "…")
    at = f"the server at {place}"
    code = error.sqlstate or ""
    for length in (5, 3, 2):
        if code[:length] in _BY_CODE and len(code) >= length:
            kind, words = _BY_CODE[code[:length]]
            return kind(f"{at} {words} ({said})")
    if isinstance(error, psycopg.OperationalError):
        if "unsupported startup parameter" in said:
            return ConfigError(
                f"{at} is a pooler that takes no settings with a connection: "
                f"add pooler=transaction to the url, or name the server itself ({said})"
            )
        # A refused password has no code: the driver only has the server's text.
        if "authentication failed" in said or "no password supplied" in said:
            return ConfigError(f"{at} refused the user name or the password of the url ({said})")
        if "does not exist" in said:
            return ConfigError(f"{at} does not know the database or the user of the url ({said})")
        return StoreUnavailableError(f"{at} cannot be reached: {said}")
    return StoreError(f"{at} failed: {said}")
