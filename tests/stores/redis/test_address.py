"""What the url of a server can say."""

import pytest

from penstock.core.errors import ConfigError
from penstock.stores.redis.address import Address, PoolSettings, parse


def test_a_short_url_means_the_defaults() -> None:
    target = parse("redis://")

    assert target.addresses == (Address("localhost", 6379),)
    assert target.settings == PoolSettings()
    assert (target.username, target.password, target.database, target.tls) == (None, None, 0, None)


def test_every_part_of_a_url_is_understood() -> None:
    target = parse("valkey://ada:p%40ss@db.example.org:7000/3?connections=4&answer_timeout=500ms")

    assert target.addresses == (Address("db.example.org", 7000),)
    assert (target.username, target.password, target.database) == ("ada", "p@ss", 3)
    assert (target.settings.connections, target.settings.answer_timeout) == (4, 0.5)


def test_a_socket_has_a_path_and_no_port() -> None:
    assert parse("unix:///run/redis%20one.sock").addresses == (Address("/run/redis one.sock"),)


def test_a_url_has_several_addresses_of_a_cluster() -> None:
    target = parse("redis://ada:x@h1:7001,h2,[::1]:7003,h1:7001/0?connections=4")

    assert target.addresses == (Address("h1", 7001), Address("h2", 6379), Address("::1", 7003))
    assert repr(target) == "Target('h1:7001,h2:6379,::1:7003', database=0)"


def test_an_address_between_commas_is_not_empty() -> None:
    with pytest.raises(ConfigError, match="found an empty address, wanted a host between commas"):
        parse("redis://h1:7001,,h2/0")


def test_tls_checks_the_name_unless_told_not_to() -> None:
    strict, lax = parse("rediss://h").tls, parse("valkeys://h?check_hostname=false").tls

    assert strict is not None
    assert strict.check_hostname
    assert lax is not None
    assert not lax.check_hostname


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("connections=0", "connections: found '0', wanted a whole number from 1 to 1000"),
        ("connections=ten", "connections: found 'ten'"),
        ("pool_timeout=0", "pool_timeout: found '0', wanted more than nothing"),
        ("pool_timeout=soon", "pool_timeout: found 'soon'"),
        ("wait_replicas=101", "wait_replicas: found '101', wanted a whole number from 0 to 100"),
        ("wait_fsync=1", "no option is called wait_fsync; there are answer_timeout, ca"),
        ("speed=high", "no option is called speed; there are answer_timeout, ca"),
        ("ca=/etc/ca.pem", "ca goes with rediss:// and valkeys:// only"),
        ("check_hostname=maybe", "check_hostname: found 'maybe', wanted true or false"),
    ],
)
def test_an_option_that_cannot_be_is_named(query: str, said: str) -> None:
    with pytest.raises(ConfigError, match="is not a url of a Redis or Valkey server") as caught:
        parse(f"redis://h?{query}")

    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"ca: found '/nowhere/ca\.pem', wanted the path of a file"):
        parse("rediss://h?ca=/nowhere/ca.pem")
