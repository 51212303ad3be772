"""Which addresses are on the public internet, and what the others are."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_IPV4: Final = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by a carrier",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "metadata of a cloud",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "reserved",
    "192.52.193.0/24": "reserved",
    "192.88.99.0/24": "6to4 relays",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "reserved",
    "198.18.0.0/15": "benchmarks",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}
_IPV6: Final = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::ffff:0:0/96": "a mapped IPv4 address",
    "64:ff9b::/96": "NAT64",
    "64:ff9b:1::/48": "NAT64",
    "2001::/23": "reserved",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "2620:4f:8000::/48": "reserved",
    "3fff::/20": "documentation",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}
_SPECIAL: Final = [(ip_network(text), what) for text, what in (_IPV4 | _IPV6).items()]
_GLOBAL_IPV6: Final = IPv6Network("2000::/3")
"""All that was ever given out to the public; what lies outside is refused without being named."""


def why_not(address: Address, allowed: Sequence[Network] = ()) -> str | None:
    """What keeps requests from this address, in a word or two; None when nothing does.

    An address that carries another one inside has to be allowed itself, and so has the other.
    """
    if (own := _own(address, allowed)) is not None:
        return own
    inner = _inner(address)
    return None if inner is None else why_not(inner, allowed)


def _own(address: Address, allowed: Sequence[Network]) -> str | None:
    if any(address in network for network in allowed):
        return None
    for network, what in _SPECIAL:
        if address in network:
            return what
    if isinstance(address, IPv6Address):
        if address not in _GLOBAL_IPV6:
            return "reserved"
        if (int(address) >> 32) & 0xFDFF_FFFF == 0x0000_5EFE:
            return "ISATAP"
    return None


def _inner(address: Address) -> IPv4Address | None:
    """The IPv4 address that a gateway would make of this one."""
    if not isinstance(address, IPv6Address):
        return None
    if any(address in network for network in _LAST_FOUR_BYTES):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour


_LAST_FOUR_BYTES: Final = [IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")]
