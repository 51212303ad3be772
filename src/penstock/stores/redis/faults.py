"""What goes wrong on a connection, in Penstock's own errors and without secrets."""

import ssl
from collections.abc import Iterator, Sequence
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
    """Translates for one server."""

    def __init__(self, url: str, secrets: Sequence[str]) -> None:
        self._at = f"the server at {url}"
        self._secrets = secrets

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise what a connection raises in the block as one of Penstock's errors."""
        try:
            yield
        except PenstockError:
            # Some are system errors too.
            raise
        except (ReplyError, OSError) as error:
            raise self.translate(error) from error

    def translate(self, error: Exception) -> PenstockError:
        """One of Penstock's errors."""
        said = str(error)
        for secret in self._secrets:
            said = said.replace(secret, "…")
        if isinstance(error, ReplyError):
            return self._refused(said)
        if isinstance(error, LateReplyError):
            return StoreTimeoutError(f"{self._at} did not answer in time ({said})")
        if isinstance(error, ssl.SSLCertVerificationError):
            return ConfigError(f"{self._at} showed a certificate that is not accepted: {said}")
        return StoreUnavailableError(f"{self._at} cannot be reached: {said}")

    def _refused(self, said: str) -> PenstockError:
        if said.startswith(_LOGIN):
            return ConfigError(f"{self._at} refused the user name or the password of the url ({said})")
        # An error inside a script keeps its first word; what the user may not do there is said further on.
        if said.startswith(_FORBIDDEN) or "executing the script can't" in said:
            return ConfigError(f"{self._at} does not let this user do what Penstock needs: {said}")
        if said.startswith("OOM"):
            return StoreFullError(
                f"{self._at} is at its maxmemory: let workers and `prune` make room, or raise it ({said})"
            )
        if said.startswith("READONLY"):
            return StoreReadOnlyError(f"{self._at} is a replica: the url has to name the primary ({said})")
        if said.startswith(("MISCONF", "NOREPLICAS")):
            return StoreReadOnlyError(f"{self._at} accepts no writes: {said}")
        if said.startswith("NOQUEUE"):
            return QueueNotOpenError(said)
        if said.startswith(_AWAY):
            return StoreUnavailableError(f"{self._at} cannot serve now: {said}")
        return StoreError(f"{self._at} failed: {said}")
