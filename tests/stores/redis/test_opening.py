"""What is looked at before a server is used, and what is said of it."""

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock.core.errors import ConfigError, PenstockError, StoreUnavailableError, StoreVersionError
from penstock.core.job import QueueRef
from penstock.stores.redis import RedisStore
from penstock.stores.redis.opening import _version
from penstock.stores.values import Durability
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.waiting import block_until
from tests.stores.redis.operating import tell

SECRET = "hunter2:/@%"
QUOTED = "hunter2%3A%2F%40%25"


def _answers(path: Path) -> bool:
    """The file is there before the server listens on it."""
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(str(path))
        return True
    return False


@pytest.fixture
def socket_path(binary: Path, tmp_path: Path) -> Iterator[str]:
    """The path of the socket of a server that listens on no port."""
    # Paths of sockets must be short, and a test's folder may have a long name.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        process = subprocess.Popen(
            [binary, "--port", "0", "--unixsocket", path, "--dir", tmp_path, "--save", ""],
            stdout=subprocess.DEVNULL,
        )
        try:
            block_until(lambda: _answers(path))
            yield str(path)
        finally:
            valkey.stop(process)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_evicts_is_refused_with_the_remedy(
    url: str, operator: Redis, policy: str
) -> None:
    """It would lose accepted jobs without a word."""
    await operator.config_set("maxmemory-policy", policy)

    with pytest.raises(ConfigError, match=f"{policy}.*CONFIG SET maxmemory-policy noeviction"):
        await RedisStore(url).open()


async def test_a_user_who_may_not_ask_for_settings_is_accepted(url: str, operator: Redis) -> None:
    """Many hosts forbid CONFIG; INFO then says enough."""
    await tell(
        operator, "ACL", "SETUSER", "app", "on", ">pw", "~penstock:*", "&penstock:*", "+@all", "-config"
    )
    await operator.config_set("appendonly", "yes")

    async with opened(RedisStore(_as(url, "app:pw"))) as store:
        info = await store.health.info()
        await enqueue(store, QueueRef("default", "q"), [new_job("a")])
        claimed = await claim_one(store, QueueRef("default", "q"))
    await _end_rewrite(operator)

    assert info.durability is Durability.SERVER
    assert claimed.id == "a"


async def test_an_evicting_policy_is_seen_without_config(url: str, operator: Redis) -> None:
    """INFO tells of it."""
    await tell(operator, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
    await operator.config_set("maxmemory-policy", "allkeys-lfu")

    with pytest.raises(ConfigError, match="allkeys-lfu"):
        await RedisStore(_as(url, "app:pw")).open()


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, Durability.PROCESS),
        ({"appendonly": "yes"}, Durability.SERVER),
        ({"appendonly": "yes", "appendfsync": "always"}, Durability.POWER),
    ],
)
async def test_durability_follows_from_what_the_server_keeps(
    store: RedisStore, operator: Redis, settings: dict[str, str], wanted: Durability
) -> None:
    """A server without an append-only file may forget all it accepted."""
    for name, value in settings.items():
        await operator.config_set(name, value)

    info = await store.health.info()
    await _end_rewrite(operator)

    assert info.durability is wanted
    assert (info.kind, info.schema_version, info.clock_offset_ms) == ("redis", 2, 0)
    assert info.server_version.startswith(("Valkey ", "Redis "))


async def test_a_store_of_a_later_schema_is_refused(url: str, operator: Redis) -> None:
    """What stands there may mean something else."""
    await operator.hset("penstock:store", "schema", "3")

    with pytest.raises(StoreVersionError, match="schema 3"):
        await RedisStore(url).open()


@pytest.mark.parametrize("login", [f":{QUOTED}", f"default:{QUOTED}", f"nobody:{QUOTED}"])
async def test_a_wrong_password_is_a_fault_of_the_configuration_and_is_not_told(
    url: str, operator: Redis, login: str
) -> None:
    """Neither in the message nor in its causes."""
    await operator.config_set("requirepass", "another")

    with pytest.raises(ConfigError, match="password") as caught:
        await RedisStore(_as(url, login)).open()

    assert not _told(caught.value)


async def test_a_missing_password_is_a_fault_of_the_configuration(url: str, operator: Redis) -> None:
    """It will not come by itself."""
    await operator.config_set("requirepass", "another")

    with pytest.raises(ConfigError, match="password"):
        await RedisStore(url).open()


async def test_the_right_password_is_shown_nowhere(url: str, operator: Redis) -> None:
    """The url of the store comes without it."""
    await operator.config_set("requirepass", SECRET)

    async with opened(RedisStore(_as(url, f":{QUOTED}") + "?client_name=x")) as store:
        info = await store.health.info()

    assert info.url == url


@pytest.mark.parametrize(
    "bad",
    [
        f"redis://:{QUOTED}@127.0.0.1:port/0",
        f"redis://:{QUOTED}@127.0.0.1:6379/0?answer_timeout=soon",
        f"redis://:{QUOTED}@127.0.0.1:6379/0?speed=high",
        f"redis://:{QUOTED}@127.0.0.1:6379/abc",
        "redis://:hunter2/x@127.0.0.1:6379/0",
        "redis://:x/hunter2@127.0.0.1:6379/0",
        f"mysql://:{QUOTED}@127.0.0.1/0",
    ],
)
async def test_a_url_that_is_none_is_told_without_its_password(bad: str) -> None:
    """What is wrong is said nevertheless."""
    with pytest.raises(ConfigError) as caught:
        await RedisStore(bad).open()

    assert not _told(caught.value)


@pytest.mark.parametrize("path", ["abc", "-1", "1/2", "0x1"])
@pytest.mark.parametrize("scheme", ["redis", "valkey"])
async def test_a_path_that_is_no_number_of_a_database_is_refused(url: str, scheme: str, path: str) -> None:
    """And not taken for database 0."""
    bad = url.replace("redis://", f"{scheme}://").removesuffix("0") + path

    with pytest.raises(ConfigError, match=f"the number of a database.*or nothing; found '/{path}'"):
        await RedisStore(bad).open()


@pytest.mark.parametrize("path", ["", "/", "/1"])
async def test_a_path_is_the_number_of_a_database_or_nothing(url: str, path: str) -> None:
    """Nothing means database 0."""
    async with opened(RedisStore(url.removesuffix("/0") + path)) as store:
        assert await store.clock.now() > 0


async def test_a_server_that_is_not_there_is_unavailable(binary: Path, tmp_path: Path) -> None:
    """The message names the place and not the password."""
    with valkey.running(binary, tmp_path) as server:
        gone = _as(server.url, f":{QUOTED}")

    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1") as caught:
        await RedisStore(gone).open()

    assert not _told(caught.value)


async def test_several_addresses_are_for_clusters(url: str) -> None:
    """Of other servers one is the primary, and nothing says which."""
    with pytest.raises(
        ConfigError, match="found 2 addresses, wanted one: the server is no node of a cluster"
    ):
        await RedisStore(url.replace("/0", ",127.0.0.2:1/0")).open()


async def test_the_schemes_of_valkey_are_understood(url: str) -> None:
    """The same protocol under another name."""
    async with opened(RedisStore(url.replace("redis://", "valkey://"))) as store:
        assert await store.clock.now() > 0


async def test_a_server_on_a_socket_file_is_reached(socket_path: str) -> None:
    """By a url that has no host."""
    async with opened(RedisStore(f"unix://{socket_path}")) as store:
        info = await store.health.info()

    assert info.url == f"unix://{socket_path}"


def test_versions_are_told_apart() -> None:
    """Valkey says which Redis it once was, too."""
    assert _version({"redis_version": "6.2.14"}) == ("Redis", (6, 2, 14))
    assert _version({"redis_version": "7.2.4", "valkey_version": "8.1.0"}) == ("Valkey", (8, 1, 0))
    assert _version({}) == ("Redis", None)


async def _end_rewrite(operator: Redis) -> None:
    """A server that writes its first append-only file does not end when it is told to."""
    await operator.config_set("appendonly", "no")


def _as(url: str, login: str) -> str:
    return url.replace("redis://", f"redis://{login}@")


def _told(error: BaseException | None) -> bool:
    """Whether the secret stands in the error or in what it came from."""
    while error is not None:
        said = f"{error} {error!r}"
        if "hunter2" in said:
            return True
        error = error.__cause__ or (None if isinstance(error, PenstockError) else error.__context__)
    return False
