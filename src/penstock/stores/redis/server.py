"""The connection to the server: a bounded pool, a time limit on every call, Penstock's own errors."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from redis import exceptions as faults
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from penstock.core.errors import (
    ConfigError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from penstock.stores.redis.scripts import Scripts

ANSWER_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 4.0
POOL_SIZE: Final = 10
POOL_SECONDS: Final = 4.0
_SCHEMES: Final = {"valkey": "redis", "valkeys": "rediss"}


class QueueNotOpenError(StoreError):
    """The queue's metadata is not there: it is new, or the server came back empty. Never leaves the store."""


class Server:
    """One server, used from one event loop.

    No call is repeated here: after a lost answer only the caller knows whether a second one is harmless.
    The client closes a connection whose answer it did not read to the end, also when the call is cancelled.
    """

    def __init__(self, url: str, scripts: Scripts) -> None:
        self._url = url
        self._scripts = scripts
        self._pool: BlockingConnectionPool | None = None
        self._client: Redis | None = None
        self.url, self._secrets = _without_secrets(url)

    def connect(self) -> None:
        """Make the pool; connections are made when they are needed."""
        parts = urlsplit(self._url)
        scheme = _SCHEMES.get(parts.scheme, parts.scheme)
        if scheme != "unix":
            self._check_database(parts.path)
        # Only connections over a network know this one.
        network = {} if scheme == "unix" else {"socket_keepalive": True}
        try:
            self._pool = BlockingConnectionPool.from_url(
                urlunsplit(parts._replace(scheme=scheme)),
                protocol=2,
                max_connections=POOL_SIZE,
                timeout=POOL_SECONDS,
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=CONNECT_SECONDS,
                retry=Retry(NoBackoff(), 0),
                **network,
            )
            # Made only to see whether the url's options are known.
            self.connection()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.url} is not a url of a Redis or Valkey server: {error}") from None
        self._client = Redis(connection_pool=self._pool)

    def _check_database(self, path: str) -> None:
        """The client would take database 0 for a path that it does not understand."""
        if re.fullmatch(r"(/[0-9]*)?", path):
            return
        # What stands before an @ may be the end of a password that has a slash in it.
        found = "an @; a / in a password is written %2F" if "@" in path else repr(path)
        raise ConfigError(
            f"{self.url} is not a url of a Redis or Valkey server: "
            f"its path has to be the number of a database, as in /0, or nothing; found {found}"
        )

    async def close(self) -> None:
        """Close every connection. Harmless when there is none."""
        pool, self._pool, self._client = self._pool, None, None
        if pool is not None:
            await pool.disconnect()

    def connection(self) -> AbstractConnection:
        """A connection of its own outside the pool, not yet connected."""
        if self._pool is None:
            raise StoreError(f"the store at {self.url} is not open")
        made: AbstractConnection = self._pool.connection_class(**self._pool.connection_kwargs)
        return made

    async def command(self, *arguments: Any) -> Any:
        """One command."""
        with self.translated():
            return await self._execute(*arguments)

    async def commands(self, commands: Sequence[Sequence[Any]], *, at_once: bool = False) -> list[Any]:
        """Many commands in one round trip; `at_once` lets nothing come between them."""
        if not commands:
            return []
        with self.translated():
            async with self._opened.pipeline(transaction=at_once) as pipeline:
                for each in commands:
                    pipeline.execute_command(*each)
                answers: list[Any] = await pipeline.execute()
                return answers

    async def run(self, name: str, keys: Sequence[str], *arguments: Any) -> Any:
        """One script. A server that does not have it gets it."""
        script = self._scripts.get(name)
        with self.translated():
            try:
                return await self._execute("EVALSHA", script.sha, len(keys), *keys, *arguments)
            except faults.NoScriptError:
                return await self._execute("EVAL", script.text, len(keys), *keys, *arguments)

    async def _execute(self, *arguments: Any) -> Any:
        return await self._opened.execute_command(*arguments)  # type: ignore[no-untyped-call] # the client's

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise what the client raises in the block as one of Penstock's errors."""
        try:
            with heeding_cancels():
                yield
        except (faults.RedisError, OSError) as error:
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> StoreError | ConfigError:
        said = str(error)
        for secret in self._secrets:
            said = said.replace(secret, "…")
        at = f"the server at {self.url}"
        match error:
            case faults.AuthenticationError() | faults.AuthenticationWrongNumberOfArgsError():
                return ConfigError(f"{at} refused the user name or the password of the url ({said})")
            case faults.NoPermissionError() | faults.AuthorizationError():
                return ConfigError(f"{at} does not let this user do what Penstock needs: {said}")
            case faults.TimeoutError() | TimeoutError():
                return StoreTimeoutError(f"{at} did not answer in time ({said})")
            case faults.ConnectionError() | OSError():
                return StoreUnavailableError(f"{at} cannot be reached: {said}")
            case faults.OutOfMemoryError():
                return StoreFullError(
                    f"{at} is at its maxmemory: let workers and `prune` make room, or raise it ({said})"
                )
            case faults.ReadOnlyError():
                return StoreReadOnlyError(f"{at} is a replica: the url has to name the primary ({said})")
            case faults.AskError():
                return ConfigError(f"{at} is part of a cluster, which is not supported yet")
            case faults.ResponseError() if said.startswith("NOQUEUE"):
                return QueueNotOpenError(said)
            case faults.ResponseError() if said.startswith(("MISCONF", "NOREPLICAS")):
                return StoreReadOnlyError(f"{at} accepts no writes: {said}")
        return StoreError(f"{at} failed: {said}")

    @property
    def _opened(self) -> Redis:
        if self._client is None:
            raise StoreError(f"the store at {self.url} is not open")
        return self._client


@contextmanager
def heeding_cancels() -> Iterator[None]:
    """Raise at the end of the block a cancel that came during it and that the client lost.

    It sends under `asyncio.wait_for`, which in Python 3.11 drops a cancel when what it waits for is done.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except Exception:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from None
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


def _without_secrets(url: str) -> tuple[str, tuple[str, ...]]:
    """The url to show, and what must not be shown."""
    parts = urlsplit(url)
    if parts.netloc and "@" in parts.path:
        # A slash in the password has cut the url at the wrong place.
        return f"{parts.scheme}://…", ()
    place = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username and parts.password is not None else ""
    given = parts.password or ""
    secrets = sorted({secret for secret in (given, unquote(given)) if secret}, key=len, reverse=True)
    # Options after the question mark can carry a password too.
    return f"{parts.scheme}://{user}{place}{parts.path}", tuple(secrets)
