"""What reaches Spark of a failure: it shows errors with all their causes, so no secret may be in any."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import PenstockError, StoreError
from penstock.core.store_url import hide_secrets


@contextmanager
def shielded(url: str) -> Iterator[None]:
    """Let Penstock's errors out without what drivers said before, and others without the url's secrets."""
    try:
        yield
    except PenstockError as error:
        error.__cause__ = None
        error.__suppress_context__ = True
        if hide_secrets(str(error), url) == str(error):
            raise
        raise StoreError(hide_secrets(str(error), url)) from None
    except Exception as error:
        if hide_secrets(repr(error), url) == repr(error):
            raise
        raise StoreError(hide_secrets(f"{type(error).__name__}: {error}", url)) from None
