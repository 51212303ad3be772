"""Which requests and streams of a tenant are admitted, so that no tenant takes what all of them need."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.service.errors import BusyError
from penstock.stores.values import EVERYONE

if TYPE_CHECKING:
    from penstock.service.ask import Ask


class RequestAdmission:
    """Counts the requests of each tenant that are being handled, without its streams and long polls."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: Counter[str] = Counter()

    def enter(self, tenant: str) -> "RequestSlot":
        """A slot for one request more; BusyError when the tenant has too many. Operators have no bound."""
        if tenant != EVERYONE and self._running[tenant] >= self._most:
            raise BusyError(f"{self._most} requests of the tenant are being handled already")
        self._running[tenant] += 1
        return RequestSlot(self._running, tenant)


class RequestSlot:
    """A request among those that are counted, until it is released."""

    __slots__ = ("_is_held", "_running", "_tenant")

    def __init__(self, running: "Counter[str]", tenant: str) -> None:
        self._running = running
        self._tenant = tenant
        self._is_held = True

    def release(self) -> None:
        """Count the request no more; a second time does nothing."""
        if not self._is_held:
            return
        self._is_held = False
        self._running[self._tenant] -= 1
        if not self._running[self._tenant]:
            del self._running[self._tenant]


def admit_stream(streams: "Iterable[Ask]", new: "Ask", *, most: int, share: int | None) -> "Ask | None":
    """Admit one stream or long poll more beside those there; BusyError when it cannot be.

    At the limit, the oldest stream of the tenant that holds most of them has to end first; it is returned. A
    tenant never gains by this: `new` is refused unless its tenant holds fewer even afterwards.
    """
    held = list(streams)
    tenant = new.principal.tenant
    of = Counter(each.principal.tenant for each in held)
    if share is not None and tenant != EVERYONE and of[tenant] >= share:
        raise BusyError(f"the tenant holds {of[tenant]} streams and long polls already, of at most {share}")
    if len(held) < most:
        return None
    greedy, number = max(of.items(), key=lambda each: each[1])
    if of[tenant] + 1 >= number:
        raise BusyError(f"{most} streams and long polls are open already")
    return min((each for each in held if each.principal.tenant == greedy), key=lambda each: each.held_since)
