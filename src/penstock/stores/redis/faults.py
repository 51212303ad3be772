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
from penstock.stores.redis.line import LateReplyError, ReplyError

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
        said = hide(str(error), self._secrets)
        if isinstance(error, ReplyError):
            return self._refused(said)
        if isinstance(error, LateReplyError):
            return StoreTimeoutError(f"{self._at} did not answer in time ({said})")
        if isinstance(error, ssl.SSLCertVerificationError):
            return ConfigError(f"{self._at} showed a certificate that is not accepted: {said}")
        return StoreUnavailableError(f"{self._at} cannot be reached: {said}")

    def _refused(self, said: str) -> PenstockError:
        if said.startswith(_LOGIN):
            return self._no_longer(ConfigError, f"refused the user name or the password of the url ({said})")
        # An error inside a script keeps its first word; what the user may not do there is said further on.
        if said.startswith(_FORBIDDEN) or "executing the script can't" in said:
            return ConfigError(f"{self._at} does not let this user do what Penstock needs: {said}")
        if said.startswith("OOM"):
            return StoreFullError(
                f"{self._at} is at its maxmemory: let workers and `prune` make room, or raise it ({said})"
            )
        if said.startswith("READONLY"):
            why = f"is a replica: the url has to name the primary ({said})"
            return self._no_longer(StoreReadOnlyError, why)
        if said.startswith(("MISCONF", "NOREPLICAS")):
            return self._no_longer(StoreReadOnlyError, f"accepts no writes: {said}")
        if said.startswith("NOQUEUE"):
            return QueueNotOpenError(said)
        if said.startswith(_AWAY):
            return StoreUnavailableError(f"{self._at} cannot serve now: {said}")
        return StoreError(f"{self._at} failed: {said}")

    def _no_longer(self, at_first: type[PenstockError], why: str) -> PenstockError:
        if self.is_proven:
            return StoreUnavailableError(f"{self._at} worked before and now {why}")
        return at_first(f"{self._at} {why}")
