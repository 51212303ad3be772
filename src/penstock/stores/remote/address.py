"""What the url of a service says: where it is, which token is shown to it, and what connections live by."""

import ipaddress
import re
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.core.errors import ConfigError, OptionError
from penstock.core.payload import Description
from penstock.core.store_url import StoreUrl, parse_url
from penstock.settings import token_of_environment
from penstock.stores.options import options_of

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*")
_PORTS: Final = {"http": 80, "https": 443}


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set after the question mark. Times in seconds."""

    connections: int = 10
    """At most so many at once, not counting those that listen."""
    pool_timeout: float = 4.0
    """How long a call waits for a connection."""
    connect_timeout: float = 4.0
    answer_timeout: float = 5.0
    """So long an answer may take to come, and to come on: a lease of 30 seconds is renewed in time."""
    idle_timeout: float = 20.0
    """A connection that was quiet for so long is not used again: services and proxies close such ones."""


class Token:
    """What is shown to the service. Never part of a message, nor of what is printed of a store."""

    def __init__(self, text: str | None, file: Path | None = None) -> None:
        self._file = file
        self._text = _checked("token", text) if file is None else _read(file)

    def __repr__(self) -> str:
        return "Token(…)"

    @property
    def text(self) -> str | None:
        """The token itself; None when there is none."""
        return self._text

    def renew(self) -> bool:
        """Read the file again, where it comes from one; True when another token is in it by now."""
        before = self._text
        if self._file is not None:
            # One that is being replaced may be there, or whole, a moment later.
            with suppress(OptionError):
                self._text = _read(self._file)
        return self._text != before


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to connect. `shown` is the url without secrets."""

    host: str
    port: int
    path: str
    authority: str
    shown: str
    token: Token
    pool: PoolSettings
    tls: ssl.SSLContext | None = None


_WHOLE: Final = {"connections": (1, 1_000)}
_TIMES: Final = {"pool_timeout", "connect_timeout", "answer_timeout", "idle_timeout"}
_TLS: Final = {"ca", "cert", "key"}
_OTHERS: Final = {"plain", "token_file"}


def parse(url: str, token: str | None = None) -> Target:
    """The target of a url; ConfigError without its secrets when it is none.

    The token is the one that is given, or else the one in the url, in the file that the url names, or in
    PENSTOCK_TOKEN.
    """
    parts = parse_url(url)
    # First: where the @ is missing, what is no port is the token.
    _ = parts.host
    try:
        return _parsed(parts, token)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{parts.shown} is not a url of a Penstock service: {error}") from None


def _parsed(parts: StoreUrl, token: str | None) -> Target:
    host, port = parts.host
    if not host:
        raise ValueError("found no host, wanted one, such as https://jobs.example.org")
    if not _PATH.fullmatch(path := parts.path.rstrip("/")):
        raise ValueError("the path is the one that the service is mounted at, or nothing")
    options = options_of(parts, whole=_WHOLE, times=_TIMES, texts=_TLS | _OTHERS)
    if options.get("plain", "true") not in ("true", "false"):
        raise OptionError("plain", options["plain"], "true or false")
    is_secure = parts.scheme == "https"
    if not is_secure and options.get("plain") != "true" and not _is_local(host):
        raise ValueError(
            "http:// would show the token to everybody on the way: wanted https://, "
            "or ?plain=true in a network that is trusted"
        )
    port, place = port or _PORTS[parts.scheme], _name(host)
    settings = {name: value for name, value in options.items() if name in _WHOLE.keys() | _TIMES}
    return Target(
        host=host,
        port=port,
        path=path,
        authority=place if port == _PORTS[parts.scheme] else f"{place}:{port}",
        shown=parts.shown,
        token=_token(parts, options, token),
        pool=PoolSettings(**settings),
        tls=_tls(options, is_secure=is_secure),
    )


def _token(parts: StoreUrl, options: dict[str, Any], given: str | None) -> Token:
    if given is not None:
        return Token(given)
    if parts.password is not None and parts.username:
        raise ValueError("a token stands alone before the @, without a user")
    if in_url := parts.password or parts.username or "":
        return Token(in_url)
    if "token_file" in options:
        return Token(None, Path(options["token_file"]).expanduser())
    return Token(token_of_environment())


def _read(file: Path) -> str | None:
    try:
        return _checked("token_file", file.read_text("utf-8").strip())
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise OptionError("token_file", str(file), f"a file with a token ({why})") from None


def _checked(field: str, text: str | None) -> str | None:
    if text is not None and not _TOKEN.fullmatch(text):
        raise OptionError(field, Description("something else"), "letters, digits and any of . _ ~ + / = -")
    return text


def _name(host: str) -> str:
    """The host as requests name it."""
    if ":" in host:
        return f"[{host}]"
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError("host: found something else, wanted a name or an address") from None


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tls(options: dict[str, Any], *, is_secure: bool) -> ssl.SSLContext | None:
    if not is_secure:
        if wrong := sorted(options.keys() & _TLS):
            raise ValueError(f"{wrong[0]} goes with https:// only")
        return None
    for name in _TLS & options.keys():
        if not Path(options[name]).is_file():
            raise OptionError(name, options[name], "the path of a file")
    context = ssl.create_default_context(cafile=options.get("ca"))
    context.set_alpn_protocols(["http/1.1"])
    if "cert" in options:
        context.load_cert_chain(options["cert"], options.get("key"))
    return context
