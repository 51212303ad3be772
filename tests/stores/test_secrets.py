"""No address of a store, however it is written, has its password printed or ends in an unexpected error."""

import asyncio
import logging
import socket
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Penstock
from penstock.cli.main import run
from penstock.core.errors import ConfigError, PenstockError, StoreUnavailableError
from penstock.core.store_url import hide_secrets, parse_url, shown_url
from penstock.outbox.sources import open_outbox
from penstock.settings import AuthSettings, Settings, load
from penstock.spark.options import read_options
from penstock.stores.open import open_store

SIGNS = [
    "?",
    "#",
    "/",
    "@",
    ":",
    "%",
    "[",
    "]",
    " ",
    "ü℀",
    "%zz",
    "%ff",
    "%2F",
    "\n",
    "\t",
    "&",
    "=",
    "://",
    "\\",
]
PASSWORDS = [f"Xq7W{sign}Kj9vZ{sign}Rb3n" for sign in SIGNS] + ["Xq7WKj9v?", "#Xq7WKj9v", "1234567?Xq7WKj9v"]
ADDRESSES = [
    "redis://ada:{}@{}/0",
    "redis://:{}@{}",
    "redis://{}@{}",
    "rediss://ada:{}@{}/0",
    "valkey://ada:{}@{}/1?connections=3",
    "unix://ada:{}@/run/nowhere.sock?x={}",
    "http://{}@{}",
    "http://:{}@{}/mounted",
    "https://ada:{}@{}",
    "postgresql://ada:{}@{}/shop",
    "postgres://ada:{}@{}/shop?sslmode=disable",
    "postgresql://ada@{1}/shop?password={0}",
    "postgresql://ada@{1}/shop?sslpassword={0}",
    "postgresql://ada@one:1,{1}/shop?password={0}",
    "host={1} user=ada password={0}",
    "host={1} password={0}://",
    "sqlite://ada:{}@{}/jobs.db",
    "sqlite:///nowhere/jobs.db?key={}&at={}",
    "sqlite:///nowhere/?key={}&at={}",
    "memory://ada:{}@{}",
    "mysql://ada:{}@{}/shop",
]
MALFORMED = [
    "redis://ada:{}@host:port/0",
    "redis://ada:{}@host:99999/0",
    "redis://ada:{}@[::1/0",
    "redis://ada:{}@::1]/0",
    "redis://ada:{}@host/zero",
    "redis://ada:{}",
    "redis://ada:{}/0",
    "redis://ada:{}@host?speed=high",
    "redis://ada:{}@host/%zz",
    "redis://ada:{}@host?client_name=%zz",
    "redis://ada:{}@host#part",
    "http://{}@localhost:port",
    "http://{}@[::1",
    "http://:{}",
    "http://{}@localhost/%zz",
    "https://{}@host:0",
    "https://{}@" + "h" * 300,
    "https://{}@ho..st",
    "postgresql://ada:{}@host:port/shop",
    "postgresql://ada:{}@host:1,host:70000/shop",
    "postgresql://ada:{}@[::1/shop",
    "postgresql://ada:{}",
    "postgresql://ada:{}/shop",
    "postgresql://ada:{}@host/%zz",
    "postgresql://ada:{}@host/shop?password",
    "postgresql://ada@host/shop?password={}&bogus=1",
    "postgresql://ada@host/shop?password=a={}&bogus=1",
]


def pieces(password: str) -> set[str]:
    """Four characters in a row of the password, as it was written and as it is meant."""
    found: set[str] = set()
    for text in (password, quote(password, safe="")):
        for part in text.split():
            found |= {part[at : at + 4] for at in range(len(part) - 3)}
    # What is no part of the secret itself.
    return {each for each in found if not each.startswith("%") and "://" not in each}


def check(text: str, password: str) -> None:
    told = [each for each in pieces(password) if each in text]
    assert not told, f"{text!r} tells {told}"


def whole(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).replace(__file__, "")


def filled(address: str, password: str, place: str) -> str:
    if address.startswith("redis://{}@"):
        # Before a colon it would be a user.
        password = password.replace(":", "%3A")
    if "{}@" not in address and "?" not in address:
        # Where there is no other @, this one would make the rest of it a host.
        password = password.replace("@", "%40")
    return address.format(password, place)


@pytest.fixture(scope="module")
def closed() -> str:
    """A host and port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def check_refusal(error: PenstockError, password: str) -> None:
    assert isinstance(error, ConfigError | ValueError)
    check(str(error), password)
    check("".join(traceback.TracebackException.from_exception(error).format_exception_only()), password)
    # Nothing of what was said before is shown with it.
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


def tried(url: str, password: str) -> None:
    """Whatever is said of the url by all that takes one."""
    check(shown_url(url), password)
    for take in (open_store, Penstock, open_outbox, lambda url: read_options({"url": url})):
        try:
            made = take(url)
        except PenstockError as error:
            check_refusal(error, password)
        else:
            check(repr(made), password)
    check(repr(Settings(url=url, token=password, auth=AuthSettings(key=password))), password)


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("is_quoted", [False, True])
def test_no_password_is_told(password: str, is_quoted: bool, closed: str) -> None:
    written = quote(password, safe="") if is_quoted else password
    for address in ADDRESSES:
        tried(filled(address, written, closed), password)


@pytest.mark.parametrize("address", MALFORMED)
def test_a_malformed_url_is_refused_by_name_and_tells_nothing(address: str) -> None:
    for password in ("Xq7WKj9vZRb3n", "Xq7W%3FKj9vZ", "Xq7W?Kj9vZ", "Xq7W#Kj9vZ", "Xq7W/Kj9vZ", "Xq7W@Kj9vZ"):
        url = filled(address, password, "")
        tried(url, password)
        with pytest.raises(ConfigError) as refused:
            open_store(url)
        fields = ("user", "password", "host", "port", "path", "option", "fragment", "token", "database")
        assert any(f"{field}" in str(refused.value) for field in fields), str(refused.value)


@settings(max_examples=60, deadline=None)
@given(
    # With an @: what stands before a number without one is a host.
    st.sampled_from([each for each in (*ADDRESSES, *MALFORMED) if "@" in each]),
    st.text(st.sampled_from("XqWKjv79?#/@:%[] ü\n&=\\"), max_size=14),
)
def test_passwords_that_nobody_thought_of_are_not_told_either(address: str, password: str) -> None:
    tried(filled(address, password, "db.example.org:6400"), password)


def test_a_quoted_password_is_understood() -> None:
    for password in PASSWORDS:
        if "%" in password:
            continue
        url = parse_url(f"redis://ada:{quote(password, safe='')}@host:7000/0")
        assert (url.username, url.password) == ("ada", password)
        assert url.shown == "redis://ada@host:7000/0"
        check(repr(url), password)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://ada:pa?ss@host", "password: found a ?, wanted it written as %3F"),
        ("redis://ada:pa#ss@host", "password: found a #, wanted it written as %23"),
        ("redis://ada:pa/ss@host", "password: found a /, wanted it written as %2F"),
        ("redis://ada:pa[ss@host", "password: found a [, wanted it written as %5B"),
        ("redis://ada:pa%zzss@host", "password: found a % without two hexadecimal digits, wanted %25"),
        ("redis://ada:pa%ffss@host", "password: found bytes that are not UTF-8"),
        ("redis://ada:pa\nss@host", "password: found a control character"),
        ("redis://ada:pass@host:port", "port: found something else, wanted a number from 1 to 65535"),
        ("redis://ada:pass@[::1", "host: found a [ without a ]"),
        ("https://pa?ss@host", "token: found a ?, wanted it written as %3F"),
        ("postgresql://ada:pa#ss@host", "password: found a #, wanted it written as %23"),
        ("redis://host?client_name=a@b", "password: found a ?, wanted it written as %3F"),
    ],
)
def test_a_refusal_names_the_field_and_how_it_is_written(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url)

    assert said in str(refused.value)
    assert str(refused.value).startswith(f"{url.partition(':')[0]}://")


@pytest.mark.parametrize(
    ("text", "url", "hidden"),
    [
        ("a/b or a%2Fb", "redis://me:a%2Fb@host/0", "… or …"),
        ("said p-token", "https://p-token@host", "said …"),
        ("Xq7W?Kj9v", "redis://me:Xq7W?Kj9v@host", "…"),
        ("at redis://me:Xq7W@host/0 now", "redis://me:Xq7W@host/0", "at redis://me@host/0 now"),
        ("a cat", "redis://me:a@host", "… cat"),
        ("p1 p2", "postgresql://host/db?password=p1&sslpassword=p2", "… …"),
        ("p/1 p2", "redis://me:p/1@host", "… p2"),
        ("p1", "redis://me:p1@[::1/0?client_name=a@b", "…"),
    ],
)
def test_texts_of_others_lose_the_secrets_of_a_url(text: str, url: str, hidden: str) -> None:
    assert hide_secrets(text, url) == hidden


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_TOKEN", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)


COMMANDS = [
    ["queues", "list"],
    ["doctor", "--debug"],
    ["migrate", "status"],
    ["outbox", "status", "--from", "{}"],
    ["serve", "--port", "0", "--debug"],
]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "password", ["Xq7W?Kj9v", "Xq7W#Kj9v", "Xq7W[Kj9v", "Xq7WKj9v", "Xq7W℀Kj9v", "Xq7W%zzKj9v"]
)
def test_the_command_line_says_one_line_without_the_password(
    password: str, closed: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", password)
    for address in ("redis://ada:{}@{}/0", "http://{}@{}", "postgresql://ada:{}@{}/shop", "sqlite://a:{}@{}"):
        url = filled(address, password, closed)
        for command in COMMANDS:
            code = run([each.format(url) for each in command] + ["--url", url])
            out, err = capfd.readouterr()
            # A store without tables has nothing to migrate.
            assert code in ((0, 1, 2) if command[0] == "migrate" else (1, 2)), (command, url)
            assert "should not happen" not in err
            check(out + err, password)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "arguments",
    [
        ["{}"],
        ["queues", "list", "{}"],
        ["queues", "--url={}"],
        ["jobs", "{}"],
        ["queues", "list", "--app", "{}"],
    ],
)
def test_a_url_in_the_wrong_place_is_not_repeated(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    password = "Xq7W?Kj9v"
    code = run([each.format(f"redis://ada:{password}@host/0") for each in arguments])

    assert code in (1, 2)
    check("".join(capfd.readouterr()), password)


def test_a_url_of_another_type_is_not_repeated() -> None:
    password = "Xq7WKj9v"
    for wrong in (f"redis://a:{password}@h".encode(), [f"redis://a:{password}@h"]):
        with pytest.raises(ConfigError) as refused:
            open_store(wrong)  # type: ignore[arg-type]
        check(str(refused.value), password)
        for name in ("url", "token", "auth.key"):
            with pytest.raises(PenstockError) as untold:
                load({name: wrong}, environ={})
            check(str(untold.value), password)


@pytest.mark.parametrize("address", ["redis://ada:{}@{}/0", "http://{}@{}", "postgresql://ada:{}@{}/shop"])
def test_a_server_that_is_away_is_told_without_the_password(
    address: str, closed: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    for password in ("Xq7W-Kj9v", "Xq7W%3FKj9v"):
        if address.startswith("http") and "%" in password:
            continue
        with pytest.raises(StoreUnavailableError) as away:
            asyncio.run(open_store(filled(address, password, closed)).open())
        check(whole(away.value).replace(filled(address, password, closed), ""), password)
        check(caplog.text, password)
