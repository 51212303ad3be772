"""An address as a stranger wrote it, read in the one way that every program reads it alike."""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import msgspec

from penstock.core.errors import OptionError
from penstock.core.ranges import Address, why_not
from penstock.service.egress.policy import EgressPolicy

URL_CHARS: Final = 2_000
_URL: Final = re.compile(r"(?P<scheme>[a-z]+)://(?P<authority>[^/?#]*)(?P<path>[/?][^#]*)?")
_AUTHORITY: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


class Target(msgspec.Struct, frozen=True):
    """Where a request goes. `host` is a name in small letters or an address without brackets."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None
    """The host, where it is an address and needs no resolver."""

    @property
    def is_secure(self) -> bool:
        """True where the connection is encrypted and the other side has to prove its name."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port as they stand in the Host header."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def read_target(field: str, url: object, policy: EgressPolicy) -> Target:
    """The target of a url; OptionError unless it is plain, allowed, and means the same to every reader.

    Whatever readers are known to disagree about is refused: names and passwords before the host, backslashes,
    other notations of IPv4 addresses, letters beyond ASCII, a fragment. An address that may not be
    reached is refused here already; what a name stands for is looked at when a request is made.
    """
    if not isinstance(url, str) or not 0 < len(url) <= URL_CHARS:
        raise OptionError(field, url, f"a url of up to {URL_CHARS} characters")
    if any(not "!" <= sign <= "~" or sign in '\\"<>^`{|}' for sign in url):
        wanted = "a url of printable ASCII; a host in other letters as its xn-- form, other signs as %XX"
        raise OptionError(field, url, wanted)
    # Not repeated: what stands before the sign may be a password.
    shown = "a url with '@' in it" if "@" in url else url
    parts = _URL.fullmatch(url)
    schemes = ["https://", "http://"] if policy.plain else ["https://"]
    if parts is None or f"{parts['scheme']}://" not in schemes:
        raise OptionError(field, shown, f"a url that begins with {' or '.join(schemes)}, without a fragment")
    authority = _AUTHORITY.fullmatch(parts["authority"])
    if authority is None:
        wanted = (
            "a host, as a name or an address, with a port if it is not the usual one, and nothing before it"
        )
        raise OptionError(field, shown, wanted)
    host, address = _host(field, authority["host"])
    port = int(authority["port"] or _DEFAULT_PORTS[parts["scheme"]])
    if not policy.allows_port(port):
        raise OptionError(field, shown, f"one of the ports {_named(policy)}")
    if address is not None and (why := why_not(address, policy.networks)) is not None:
        raise OptionError(field, shown, f"an address on the public internet; this one is {why}")
    path = parts["path"] or "/"
    return Target(parts["scheme"], host, port, path if path.startswith("/") else f"/{path}", address)


def _host(field: str, text: str) -> tuple[str, Address | None]:
    if text.startswith("["):
        try:
            six = IPv6Address(text[1:-1])
        except ValueError:
            raise OptionError(field, text, "an IPv6 address in its brackets") from None
        return str(six), six
    labels = text.split(".")
    # What ends in a number is an address to some resolvers, in base eight or sixteen, or with parts left out.
    if _NUMBER.fullmatch(labels[-1]):
        try:
            four = IPv4Address(text)
        except ValueError:
            raise OptionError(field, text, "an IPv4 address as four numbers from 0 to 255") from None
        return str(four), four
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise OptionError(field, text, "a host name: labels of letters, digits and '-', with dots between")
    name = text.lower()
    if name == "localhost" or name.endswith(".localhost"):
        # Never anything else, whatever a resolver says.
        return name, IPv4Address("127.0.0.1")
    return name, None


def _named(policy: EgressPolicy) -> str:
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in policy.ports)
