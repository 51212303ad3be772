"""Urls of services: what they can say, and that their secrets are never told."""

import sys
from pathlib import Path

import pytest

from penstock import open_store
from penstock.core.errors import ConfigError
from penstock.stores.remote.address import parse

TOKEN = "pst_abc.DEF-123"


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://jobs.example.org", "jobs.example.org", 443, "", "jobs.example.org"),
        ("https://example.org:8443/penstock/", "example.org", 8443, "/penstock", "example.org:8443"),
        ("http://localhost:8640", "localhost", 8640, "", "localhost:8640"),
        ("http://[::1]:8640", "::1", 8640, "", "[::1]:8640"),
        ("http://jobs.internal?plain=true", "jobs.internal", 80, "", "jobs.internal"),
        ("https://bücher.example", "bücher.example", 443, "", "xn--bcher-kva.example"),
    ],
)
def test_a_url_says_where_the_service_is(url: str, host: str, port: int, path: str, authority: str) -> None:
    target = parse(url)

    assert (target.host, target.port, target.path, target.authority) == (host, port, path, authority)
    assert (target.tls is not None) == url.startswith("https")


def test_numbers_follow_the_question_mark() -> None:
    numbers = parse("https://h?connections=3&answer_timeout=2m&idle_timeout=500ms").pool

    assert (numbers.connections, numbers.answer_timeout, numbers.idle_timeout) == (3, 120.0, 0.5)


@pytest.mark.parametrize("url", [f"https://{TOKEN}@host/p", f"https://:{TOKEN}@host/p", "https://host/p"])
def test_the_token_comes_from_the_url_or_else_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN if "@" not in url else "another")
    target = parse(url)

    assert target.token.text == TOKEN
    assert target.shown == "https://host/p"
    assert TOKEN not in repr(target)


def test_a_token_in_a_file_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "another")
    file = tmp_path / "token"
    file.write_text("first\n")
    token = parse(f"https://host?token_file={file}").token
    before = (token.text, token.renew())
    file.write_text("second\n")

    assert before == ("first", False)
    assert (token.renew(), token.text) == (True, "second")
    file.unlink()
    assert (token.renew(), token.text) == (False, "second")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://", "found no host"),
        ("http://jobs.example.org", "wanted https://, or ?plain=true"),
        ("http://10.0.0.1", "wanted https://"),
        ("https://user:pst_abc.DEF-123@host", "without a user"),
        ("https://pst/pst_abc.DEF-123@host", "%2F"),
        ("https://pst abc@host", "letters, digits"),
        ("https://host?token=pst_abc.DEF-123", "no option is called token"),
        ("https://host?token_file=/nowhere/token", "a file with a token"),
        ("https://host?connections=0", "a whole number from 1"),
        ("https://host?answer_timeout=soon", "a duration"),
        ("https://host?plain=maybe", "true or false"),
        ("https://host?ca=/nowhere.pem", "the path of a file"),
        ("http://localhost?ca=/nowhere.pem", "https:// only"),
        ("https://host/a b", "mounted"),
        ("https://host#part", "fragment: found one, wanted none"),
        ("https://host:port", "port: found something else"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_token(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)

    assert said in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_token_that_is_none_is_refused_untold() -> None:
    with pytest.raises(ConfigError, match="found something else") as caught:
        open_store("https://host", token="line\r\nbreak")

    assert "break" not in str(caught.value)


def test_a_missing_parser_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.split(".")[0] == "httptools" or "stores.remote" in name
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httptools", None)

    with pytest.raises(ConfigError, match=r"pip install '\.\[remote\]'` in a checkout"):
        open_store("https://host")


def test_a_store_does_not_show_its_token() -> None:
    assert repr(open_store(f"https://{TOKEN}@host")) == "RemoteStore('https://host')"
