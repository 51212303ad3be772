"""Addresses: what the driver gets, and what is said of those that cannot be meant so."""

import pytest

from penstock.core.errors import ConfigError
from penstock.stores.postgres.address import address_of


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///shop",
        "postgresql:///shop?host=%2Frun%2Fpostgresql",
        "postgresql://ada:secret@db/shop",
        "postgresql://ada@db:5432/shop?sslmode=require",
        "postgresql://one:5432,two:5432/shop?target_session_attrs=read-write",
        "postgresql://[::1]:5432/shop",
        "postgresql://db:5432?password=a%40b",
    ],
)
def test_what_the_store_does_not_know_reaches_the_driver_as_it_is(url: str) -> None:
    assert address_of(url).conninfo == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://db:54x2/shop", "port: found something else"),
        ("postgresql://one:5432,two:99999/shop", "port: found something else"),
        ("postgresql://db/shop?bogus=1", "bogus"),
        ("postgresql://db/shop?options=-cjit%3Doff", "options"),
    ],
)
def test_what_nobody_knows_is_refused_before_it_is_tried(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        address_of(url)


@pytest.mark.parametrize(
    ("password", "written"),
    [("s3cr/et", "%2F"), ("s3cr#et", "%23"), ("s3cr?et", "%3F"), ("s3cr@et", "%40"), ("s3cr[et", "%5B")],
)
def test_a_password_with_a_sign_of_its_own_is_refused_and_not_shown(password: str, written: str) -> None:
    with pytest.raises(ConfigError) as refused:
        address_of(f"postgresql://ada:{password}@db:5432/shop")

    assert written in str(refused.value)
    assert "s3cr" not in str(refused.value)
    assert "et@" not in str(refused.value)
