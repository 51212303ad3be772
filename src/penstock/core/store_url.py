"""The url of a store: the one place that takes it apart, and the one that hides its secrets."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from penstock.core.errors import ConfigError

LAST_PORT: Final = 65_535
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,19}")
_OPTION: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_AUTHORITY: Final = re.compile(r"[^/?#]*")
_REST: Final = re.compile(r"([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_TOKENS: Final = frozenset({"http", "https"})
"""Schemes whose urls have a token before the @, instead of a user and a password."""
_NAMED_USERS: Final = frozenset({"postgresql", "postgres"})
"""Schemes where a name alone before the @ is a user, and not a password in the wrong place."""
_SECRET_OPTIONS: Final = frozenset({"password", "sslpassword", "token", "key", "secret"})
_WHOLE_WORDS_BELOW: Final = 4
"""A secret shorter than this is hidden where it stands alone: elsewhere it would be parts of other words."""


class StoreUrl(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a url. `username` and `password` are decoded, all else is as it was written.

    `place` is what stands after the @: hosts and ports. Printing it shows no secret.
    """

    scheme: str
    userinfo: str
    place: str
    path: str
    query: str
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"StoreUrl({self.shown!r})"

    @property
    def shown(self) -> str:
        """The url to show: without password, token and options."""
        named = self.scheme in _NAMED_USERS or (self.password is not None and self.scheme not in _TOKENS)
        user = f"{self.userinfo.partition(':')[0]}@" if self.username and named else ""
        return f"{self.scheme}://{user}{self.place}{self.path}"

    @property
    def options(self) -> list[tuple[str, str]]:
        """The options after the question mark, decoded, in their order."""
        return parse_qsl(self.query, keep_blank_values=True)

    @property
    def hosts(self) -> list[tuple[str, int | None]]:
        """Hosts and ports; ConfigError for what cannot be any."""
        return [_host(self.scheme, each) for each in self.place.split(",")]

    @property
    def host(self) -> tuple[str, int | None]:
        """The one host, "" where none is named, and its port; ConfigError for what cannot be either."""
        return _host(self.scheme, self.place)


def parse_url(url: str) -> StoreUrl:
    """The parts of a url; ConfigError, which repeats no part that may be a secret, when it is none."""
    scheme = scheme_of(url)
    if scheme is None:
        raise ConfigError("url: found no scheme, wanted one, such as redis://")
    rest = url[len(scheme) + 3 :]
    authority = _AUTHORITY.match(rest)[0]  # type: ignore[index]
    userinfo, _, place = authority.rpartition("@")
    secret = "token" if scheme in _TOKENS else "password"
    if control := _CONTROL.search(url):
        raise _refused(scheme, secret, "a control character", f"it written as {quote(control[0])}, or none")
    path, query, fragment = _REST.fullmatch(rest[len(authority) :]).groups()  # type: ignore[union-attr]
    # Behind the authority an @ is no sign of its own: what stands before it may be the end of a password.
    if (authority or scheme != "sqlite") and "@" in rest[len(authority) :]:
        sign = rest[len(authority)]
        raise _refused(scheme, secret, f"a {sign}", f"it written as {quote(sign, safe='')}; an @ is %40")
    if fragment is not None:
        raise _refused(scheme, "fragment", "one", f"none; in a {secret} a # is written %23")
    if sign := next((each for each in userinfo if each in "[]"), ""):
        raise _refused(scheme, secret, f"a {sign}", f"it written as {quote(sign)}")
    user, colon, given = userinfo.partition(":")
    for field, text in (("user", user), (secret, given), ("path", path), ("option", query or "")):
        _check_escapes(scheme, secret if field == "user" and scheme in _TOKENS else field, text)
    return StoreUrl(
        scheme=scheme,
        userinfo=userinfo,
        place=place,
        path=path,
        query=query or "",
        username=unquote(user) or None,
        password=unquote(given) if colon else None,
    )


def scheme_of(url: str) -> str | None:
    """The scheme of a url; None where what stands first can be none."""
    scheme, separator, _ = url.partition("://")
    return scheme if separator and _SCHEME.fullmatch(scheme) else None


def shown_url(url: object) -> str:
    """The url to show, whatever it is: as little as its scheme where it cannot be taken apart."""
    scheme = scheme_of(url) if isinstance(url, str) else None
    if not isinstance(url, str) or scheme is None:
        return "…"
    try:
        parts = parse_url(url)
        if scheme != "sqlite":
            _ = parts.hosts
    except ConfigError:
        return f"{scheme}://…"
    return f"{scheme}://…" if scheme == "sqlite" and parts.place else parts.shown


def shown_option(name: str, query: str = "") -> str:
    """The name of an option to show; what may be a part of a secret in the query is not."""
    has_secret = any(each.partition("=")[0] in _SECRET_OPTIONS for each in query.split("&"))
    is_plain = name in _SECRET_OPTIONS or (_OPTION.fullmatch(name) and not has_secret)
    return name if is_plain else "something else"


def hide_secrets(text: str, url: str) -> str:
    """The text, which may be another program's, with … in the place of every secret of the url."""
    return hide(text.replace(url, shown_url(url)), secrets_of(url))


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """The text with … in the place of each secret."""
    for secret in secrets:
        if len(secret) >= _WHOLE_WORDS_BELOW:
            text = text.replace(secret, "…")
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "…", text)
    return text


def secrets_of(url: str) -> tuple[str, ...]:
    """All that may be a secret in a url, as it stands and as it is meant, the longest first.

    A url that cannot be taken apart has some, too: what is not escaped may end in any part of it.
    """
    found = {each for each in _written(url) if each}
    found |= {unquote(each) for each in found}
    return tuple(sorted(found, key=lambda each: (-len(each), each)))


def _written(url: str) -> Iterator[str]:
    scheme, _, rest = url.partition("://")
    for part in (_AUTHORITY.match(rest)[0], rest):  # type: ignore[index]
        user, colon, password = part.rpartition("@")[0].partition(":")
        if colon:
            yield password
        if (not colon and scheme not in _NAMED_USERS) or scheme in _TOKENS:
            yield user
    for each in re.split(r"[?&\s]", url):
        name, _, value = each.partition("=")
        if name in _SECRET_OPTIONS:
            yield value


def _host(scheme: str, place: str) -> tuple[str, int | None]:
    if place.startswith("["):
        host, bracket, rest = place[1:].partition("]")
        if not bracket:
            raise _refused(scheme, "host", "a [ without a ]", "an IPv6 address, such as [::1]")
        if rest and not rest.startswith(":"):
            raise _refused(scheme, "host", "text after the ]", "nothing, or a colon and a port")
        port = rest[1:]
    else:
        host, _, port = place.partition(":")
        if "[" in place or "]" in place:
            raise _refused(scheme, "host", "a [ or ] out of place", "a name or an address, such as [::1]")
    if not port:
        return host.lower(), None
    if not (port.isascii() and port.isdecimal() and 1 <= int(port[:6]) <= LAST_PORT):
        # Not repeated: where the @ is missing, it is the password.
        raise _refused(scheme, "port", "something else", f"a number from 1 to {LAST_PORT}")
    return host.lower(), int(port)


def _check_escapes(scheme: str, field: str, text: str) -> None:
    if _BAD_ESCAPE.search(text):
        raise _refused(scheme, field, "a % without two hexadecimal digits", "%25 for a % itself")
    try:
        unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _refused(scheme, field, "bytes that are not UTF-8", "text in UTF-8") from None


def _refused(scheme: str, field: str, found: str, wanted: str) -> ConfigError:
    return ConfigError(f"{scheme}://…: {field}: found {found}, wanted {wanted}")
