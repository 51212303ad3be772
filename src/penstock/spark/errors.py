"""What reaches Spark of a failure: it shows errors with all their causes, so no secret may be in any."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

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
    parts = urlsplit(url)
    # As it stands and as it is meant; what comes before the last @ may hold one that was not escaped.
    found = {parts.password or "", parts.netloc.rpartition("@")[0].partition(":")[2]}
    found |= {value for name, value in parse_qsl(parts.query) if name in _SECRET_PARAMETERS}
    found |= {unquote(each) for each in found}
    return sorted(filter(None, found), key=len, reverse=True)
