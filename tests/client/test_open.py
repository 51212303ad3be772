"""Urls of stores: the right store for each, and a clear word for those that name none."""

import sys
from pathlib import Path

import pytest

from penstock import ConfigError, open_store
from penstock.stores.memory import MemoryStore


def test_memory() -> None:
    assert isinstance(open_store("memory://"), MemoryStore)


@pytest.mark.parametrize("durability", ["server", "power"])
async def test_sqlite_opens_a_file_by_its_path(tmp_path: Path, durability: str) -> None:
    store = open_store(f"sqlite:///{tmp_path}/a%20b.db?durability={durability}")
    await store.open()

    assert (await store.health.info()).durability == durability
    await store.close()
    assert (tmp_path / "a b.db").exists()


async def test_sqlite_paths_with_three_slashes_are_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///jobs.db", durability="server")
    await store.open()
    await store.close()

    assert (tmp_path / "jobs.db").exists()


@pytest.mark.parametrize(
    "url", ["redis://h:1/0", "rediss://h", "valkey://h", "valkeys://h", "unix:///run/r.sock"]
)
def test_redis_and_valkey_are_not_reached_before_they_are_opened(url: str) -> None:
    assert type(open_store(url)).__name__ == "RedisStore"


@pytest.mark.parametrize("url", ["postgresql://h:1/jobs", "postgres://h/jobs?schema=mine"])
def test_postgresql_is_not_reached_before_it_is_opened(url: str) -> None:
    assert type(open_store(url)).__name__ == "PostgresStore"


def test_a_missing_driver_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "hiredis" or "stores.redis" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hiredis", None)

    with pytest.raises(ConfigError, match=r"pip install '\.\[redis\]'` in a checkout"):
        open_store("redis://localhost")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://localhost", "found mysql://, wanted one like memory://"),
        ("jobs.db", "found no scheme"),
        ("", "found no scheme"),
        (None, "found None"),
        ("sqlite://jobs.db", "wanted a file, such as sqlite:///jobs.db"),
        ("sqlite://", "wanted a file"),
        ("sqlite:///", "wanted a file"),
        ("sqlite:///dir/", "wanted a file"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///jobs.db?durability=eternal", "found 'durability=eternal'"),
        ("sqlite:///jobs.db?durability=replicated", "found 'durability=replicated'"),
        ("sqlite:///jobs.db?timeout=3", "found 'timeout=…'"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        open_store(url)


def test_a_setting_the_store_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="colour"):
        open_store("memory://", colour="red")


def test_a_password_in_a_wrong_url_is_not_told() -> None:
    with pytest.raises(ConfigError) as caught:
        open_store("amqp://user:secret@host")

    assert "secret" not in str(caught.value)
