"""Admission of connections: at the limit, a connection that waits for its client gives way.

A connection is in one of two phases. It *works* while a handler runs for a whole request; then it is never
closed to make room. It *waits* while the client has to do something: send a head, a body or the next request,
or read an answer. A connection is *anonymous* until a token was accepted on it.
"""

import ipaddress
from collections import Counter
from enum import Enum, auto
from typing import Final, Protocol

from penstock.service.errors import BusyError
from penstock.service.limits import Limits
from penstock.stores.values import EVERYONE

RESERVED: Final = 32
"""Connections beyond the limit, on which health is answered and nothing else."""
ANONYMOUS_SHARE: Final = 10
"""One connection in this many may be anonymous before those with a token are spared: clients need time."""
RELIEF: Final = 16
"""Connections that are closed at once when the process has no file descriptors left."""


class Connection(Protocol):
    """A connection to admit. `peer` is the address that it comes from."""

    peer: str

    def evict(self) -> None:
        """Close the connection now, though the client has not done what it should."""
        ...


class ConnectionKind(Enum):
    """What a new connection may be used for."""

    ORDINARY = auto()
    RESERVED = auto()
    """The limit is reached and nothing gives way: only health is answered, once."""


class ConnectionAdmission:
    """Admits every connection, and closes another one where `Limits` ask for it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._anonymous: dict[Connection, None] = {}
        self._identified: dict[Connection, str] = {}
        self._reserved: dict[Connection, None] = {}
        self._anonymous_of: dict[str, int] = {}
        self._identified_of: Counter[str] = Counter()
        self._waiting_anonymous = _Waiting()
        self._waiting_identified = _Waiting()

    def __len__(self) -> int:
        return len(self._anonymous) + len(self._identified) + len(self._reserved)

    def admit(self, new: Connection) -> ConnectionKind:
        """Admit a connection that was just made. It is anonymous, and waits."""
        limits = self._limits
        if self._anonymous_of.get(new.peer, 0) >= limits.connections_per_peer:
            victim = self._waiting_anonymous.longest(new.peer)
        elif len(self._anonymous) + len(self._identified) >= limits.connections:
            victim = self._victim()
        else:
            self._add(new)
            return ConnectionKind.ORDINARY
        if victim is not None:
            self._evict(victim)
            self._add(new)
            return ConnectionKind.ORDINARY
        if len(self._reserved) >= RESERVED:
            self._evict(next(iter(self._reserved)))
        self._reserved[new] = None
        return ConnectionKind.RESERVED

    def remove(self, old: Connection) -> None:
        """Forget a connection that is closed."""
        if old in self._anonymous:
            self._forget_anonymous(old)
        self._forget_identified(old)
        self._reserved.pop(old, None)
        self.works(old)

    def identified(self, known: Connection, tenant: str) -> None:
        """Note that a token of this tenant was accepted on the connection; BusyError if it has too many.

        A connection counts for the tenant of its last request: a proxy sends those of all on the same ones.
        """
        before = self._identified.get(known)
        if before == tenant or (before is None and known not in self._anonymous):
            return
        most = self._limits.connections_per_tenant
        if tenant != EVERYONE and self._identified_of[tenant] >= most:
            raise TooManyConnectionsError(f"{most} connections of the tenant are open already")
        if before is None:
            self._forget_anonymous(known)
        else:
            self._forget_identified(known)
        self._identified[known] = tenant
        self._identified_of[tenant] += 1
        if self._waiting_anonymous.discard(known):
            self._waiting_identified.add(known)

    def waits(self, idle: Connection) -> None:
        """Note that the client has to do something from now on."""
        if idle in self._anonymous:
            self._waiting_anonymous.add(idle)
        elif idle in self._identified:
            self._waiting_identified.add(idle)

    def works(self, busy: Connection) -> None:
        """Note that the client has done its part."""
        self._waiting_anonymous.discard(busy)
        self._waiting_identified.discard(busy)

    def relieve(self) -> int:
        """Close some connections that wait, and say how many: their file descriptors are needed."""
        for closed in range(RELIEF):
            victim = self._victim()
            if victim is None:
                return closed
            self._evict(victim)
        return RELIEF

    def _victim(self) -> Connection | None:
        """The connection that waits for longest at the address with most of them, if possible anonymous."""
        first, second = self._waiting_anonymous, self._waiting_identified
        if len(self._anonymous) <= self._limits.connections // ANONYMOUS_SHARE:
            first, second = second, first
        return first.longest() or second.longest()

    def _evict(self, victim: Connection) -> None:
        self.remove(victim)
        victim.evict()

    def _add(self, new: Connection) -> None:
        self._anonymous[new] = None
        self._anonymous_of[new.peer] = self._anonymous_of.get(new.peer, 0) + 1
        self._waiting_anonymous.add(new)

    def _forget_anonymous(self, old: Connection) -> None:
        del self._anonymous[old]
        self._anonymous_of[old.peer] -= 1
        if not self._anonymous_of[old.peer]:
            del self._anonymous_of[old.peer]

    def _forget_identified(self, old: Connection) -> None:
        tenant = self._identified.pop(old, None)
        if tenant is not None:
            self._identified_of[tenant] -= 1
            if not self._identified_of[tenant]:
                del self._identified_of[tenant]


class TooManyConnectionsError(BusyError):
    """The tenant has more connections than its share; this one is closed."""

    closes = True


class _Waiting:
    """Connections by peer address; within an address, those that wait for longest come first."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Connection, None]] = {}

    def add(self, idle: Connection) -> None:
        """Add a connection that begins to wait, or does so anew."""
        self.discard(idle)
        self._of.setdefault(idle.peer, {})[idle] = None

    def discard(self, busy: Connection) -> bool:
        """Remove a connection; False when it was not there."""
        own = self._of.get(busy.peer, {})
        if busy not in own:
            return False
        del own[busy]
        if not own:
            del self._of[busy.peer]
        return True

    def longest(self, peer: str | None = None) -> Connection | None:
        """The connection that waits for longest at this address; without one, at that with most of them."""
        own = max(self._of.values(), key=len, default=None) if peer is None else self._of.get(peer)
        return next(iter(own)) if own else None


def peer_of(address: str | None) -> str:
    """What counts as one peer: an IPv4 address, an IPv6 network of 64 bits, or a socket without either.

    >>> peer_of("2001:db8::1") == peer_of("2001:db8::2"), peer_of("::ffff:192.0.2.1"), peer_of(None)
    (True, '192.0.2.1', 'local')
    """
    if not address:
        return "local"
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
    return str(found)
