"""What goes wrong on a connection, in Penstock's own errors and without secrets."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.errors import (
    ConfigError,
    PenstockError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from penstock.core.store_url import hide
from penstock.stores.redis.connection import LateReplyError, ReplyError

_AWAY: Final = (
    "LOADING",
    "BUSY",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MASTERDOWN",
    "ERR max number of clients",
    "MOVED",
    "ASK",
)
_LOGIN: Final = ("NOAUTH", "WRONGPASS", "ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH")
_FORBIDDEN: Final = ("NOPERM", "ERR ACL failure")


class QueueNotOpenError(StoreError):
    """The queue's metadata is not there: it is new, or the server came back empty. Never leaves the store."""


class Faults:
    """Translates for one server.

    A server that refuses the login or every write when it is first used is the wrong one. If it does so after
    it `is_proven`, it was demoted, has lost its replicas or its disk, or a password is being changed: that
    passes, and whoever can wait should.
    """

    def __init__(self, url: str, secrets: tuple[str, ...]) -> None:
        self._at = f"the server at {url}"
        self._secrets = secrets
        self.is_proven = False

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise what a connection raises in the block as one of Penstock's errors."""
        try:
            yield
        except PenstockError:
            # Some are system errors too.
            raise
        except (ReplyError, OSError) as error:
            # A server may repeat the commands that it does not know, and the password with them.
            has_secret = hide(str(error), self._secrets) != str(error)
            raise self.translate(error) from (None if has_secret else error)

    def translate(self, error: Exception) -> PenstockError:
        """One of Penstock's errors."""
        message = hide(str(error), self._secrets)
        if isinstance(error, ReplyError):
            return self._refused(message)
        if isinstance(error, LateReplyError):
            return StoreTimeoutError(f"{self._at} did not answer in time ({message})")
        if isinstance(error, ssl.SSLCertVerificationError):
            return ConfigError(f"{self._at} showed a certificate that is not accepted: {message}")
        return StoreUnavailableError(f"{self._at} cannot be reached: {message}")

    def _refused(self, message: str) -> PenstockError:
        if message.startswith(_LOGIN):
            return self._no_longer(
                ConfigError, f"refused the user name or the password of the url ({message})"
            )
        # An error inside a script keeps its first word; what the user may not do there stands further on.
        if message.startswith(_FORBIDDEN) or "executing the script can't" in message:
            return ConfigError(f"{self._at} does not let this user do what Penstock needs: {message}")
        if message.startswith("OOM"):
            return StoreFullError(
                f"{self._at} is at its maxmemory: let workers and `prune` make room, or raise it ({message})"
            )
        if message.startswith("READONLY"):
            why = f"is a replica: the url has to name the primary ({message})"
            return self._no_longer(StoreReadOnlyError, why)
        if message.startswith(("MISCONF", "NOREPLICAS")):
            return self._no_longer(StoreReadOnlyError, f"accepts no writes: {message}")
        if message.startswith("NOQUEUE"):
            return QueueNotOpenError(message)
        if message.startswith(_AWAY):
            return StoreUnavailableError(f"{self._at} cannot serve now: {message}")
        return StoreError(f"{self._at} failed: {message}")

    def _no_longer(self, at_first: type[PenstockError], why: str) -> PenstockError:
        if self.is_proven:
            return StoreUnavailableError(f"{self._at} worked before and now {why}")
        return at_first(f"{self._at} {why}")
