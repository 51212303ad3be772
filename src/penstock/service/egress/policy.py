"""Where the service may send requests: what an operator allows beyond the public internet."""

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Final

import msgspec

from penstock.core.errors import OptionError
from penstock.core.ranges import Network

SECURE_PORTS: Final = "443,8443"
PLAIN_PORTS: Final = "80,443,8080,8443"


class EgressPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is allowed. Times in seconds, over all of a request: name, connection, handshake and answer."""

    networks: tuple[Network, ...] = ()
    """Ranges that may be reached though they are not public."""
    ports: tuple[tuple[int, int], ...] = ((443, 443), (8443, 8443))
    plain: bool = False
    """Allow http:// beside https://."""
    timeout: float = 20.0
    connect_timeout: float = 5.0

    @classmethod
    def of(cls, *, allow: str | None = None, ports: str | None = None, plain: bool = False) -> "EgressPolicy":
        """The policy of the settings, where lists are text with commas; OptionError names what cannot be.

        >>> EgressPolicy.of(allow="10.1.0.0/16", ports="443,9000-9010").ports
        ((443, 443), (9000, 9010))
        """
        said = ports or (PLAIN_PORTS if plain else SECURE_PORTS)
        return cls(
            networks=tuple(map(_network, _parts(allow or ""))),
            ports=tuple(map(_ports, _parts(said))),
            plain=plain,
        )

    def allows_port(self, port: int) -> bool:
        """True for a port in one of the ranges."""
        return any(first <= port <= last for first, last in self.ports)


def _parts(text: str) -> Iterable[str]:
    return (part.strip() for part in text.split(",") if part.strip())


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError:
        raise OptionError("egress.allow", text, "a network such as 10.1.0.0/16, or an address") from None


def _ports(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    ends = [int(each) if each.isascii() and each.isdigit() else 0 for each in (first, last or first)]
    if not 1 <= ends[0] <= ends[1] <= 65_535:
        raise OptionError("egress.ports", text, "a port or a range of ports, such as 443 or 9000-9010")
    return ends[0], ends[1]
