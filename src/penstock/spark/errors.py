"""What reaches Spark of a failure: it shows errors with all their causes, so no secret may be in any."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

from penstock.core.errors import PenstockError, StoreError

_SECRET_PARAMETERS: Final = frozenset({"password", "sslpassword"})


@contextmanager
def shielded(url: str) -> Iterator[None]:
    """Let Penstock's errors out without what drivers said before, and others without the url's secrets."""
    try:
        yield
    except PenstockError as error:
        error.__cause__ = None
        error.__suppress_context__ = True
        if not _holds_secret(str(error), url):
            raise
        raise StoreError(without_secrets(str(error), url)) from None
    except Exception as error:
        if not _holds_secret(repr(error), url):
            raise
        raise StoreError(without_secrets(f"{type(error).__name__}: {error}", url)) from None


def without_secrets(text: str, url: str) -> str:
    """The text with … in the place of every secret of the url."""
    for secret in _secrets_of(url):
        text = text.replace(secret, "…")
    return text


def _holds_secret(text: str, url: str) -> bool:
    return any(secret in text for secret in _secrets_of(url))


def _secrets_of(url: str) -> list[str]:
    _, _, rest = url.partition("://")
    # Up to the last @ of the place, and of all of it: what is not escaped may hold a slash.
    places = (re.split(r"[/?#]", rest, maxsplit=1)[0], rest)
    found = {place.rpartition("@")[0].partition(":")[2] for place in places}
    given = (each.partition("=") for each in rest.partition("?")[2].split("&"))
    found |= {value for name, _, value in given if name in _SECRET_PARAMETERS}
    # As it stands, and as it is meant.
    found |= {unquote(each) for each in found}
    return sorted(filter(None, found), key=len, reverse=True)
