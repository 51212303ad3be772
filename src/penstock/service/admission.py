"""Which requests and streams of a tenant are admitted, so that no tenant takes what all of them need."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from penstock.core.limits import Rate
from penstock.service.errors import BusyError
from penstock.stores.values import EVERYONE

if TYPE_CHECKING:
    from penstock.service.request import Request

SMALL_BODY: Final = 64 << 10
"""Bodies up to this size are not counted: no tenant that sends large ones keeps its small ones out."""


REFUSALS: Final = Rate(count=50, per_ms=1_000, burst=50)
"""How many refusals of one tenant are answered in a time; later ones wait, so that a client cannot spin."""
LONGEST_PAUSE: Final = 10.0
"""Seconds that a refusal waits at most."""


class RequestAdmission:
    """Admits requests of each tenant, without its streams and long polls, and lets them take turns.

    Of the `most` requests that are admitted, the handlers of `concurrent` run; among them one that is costly,
    such as a listing. The other requests wait in the order in which they came. So a request of another tenant
    waits for a few handlers of this one, however many requests this tenant sends.
    """

    def __init__(self, most: int, concurrent: int) -> None:
        self._most = most
        self._admitted: Counter[str] = Counter()
        self._turns = TenantTurns(concurrent)
        self._costly_turns = TenantTurns(1)

    async def enter(self, tenant: str, *, is_costly: bool = False) -> "RequestSlot":
        """A slot for one more request, once it is its turn; BusyError when the tenant has too many.

        Operators that act for all tenants have no bound.
        """
        if tenant == EVERYONE:
            return RequestSlot([])
        if self._admitted[tenant] >= self._most:
            raise BusyError(f"{self._most} requests of the tenant are being handled already")
        self._admitted[tenant] += 1
        slot = RequestSlot([lambda: _decrement(self._admitted, tenant)])
        try:
            for turns in (self._costly_turns, self._turns) if is_costly else (self._turns,):
                await turns.take(tenant)
                slot.add(lambda turns=turns: turns.give_back(tenant))  # type: ignore[misc]
            if is_costly:
                # Requests that came meanwhile go first: a handler may not give the event loop back for long.
                await asyncio.sleep(0)
        except BaseException:
            slot.release()
            raise
        return slot

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """A turn for a stream or long poll that looks again. Operators of all tenants wait for none."""
        if tenant == EVERYONE:
            yield
            return
        await self._turns.take(tenant)
        try:
            yield
        finally:
            self._turns.give_back(tenant)


class TenantTurns:
    """Lets `concurrent` requests of each tenant run, and the tenant's other requests wait in their order."""

    def __init__(self, concurrent: int) -> None:
        self._concurrent = concurrent
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def take(self, tenant: str) -> None:
        """Wait for a turn, which the caller gives back."""
        if self._running[tenant] < self._concurrent:
            self._running[tenant] += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(tenant)
            raise

    def give_back(self, tenant: str) -> None:
        """End a turn: it passes to the request of the tenant that has waited for longest."""
        waiting = self._waiting.get(tenant)
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(tenant, None)
        _decrement(self._running, tenant)


class RequestSlot:
    """What an admitted request holds, until it is released."""

    __slots__ = ("_releases",)

    def __init__(self, releases: "list[Callable[[], None]]") -> None:
        self._releases = releases

    def add(self, release: "Callable[[], None]") -> None:
        """Hold something more, which this call gives back."""
        self._releases.append(release)

    def release(self) -> None:
        """Give everything back; a second time does nothing."""
        while self._releases:
            self._releases.pop()()


class RefusalPause:
    """How long the refusal of a tenant's request waits: none at first, longer for a client that goes on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._arrivals: dict[str, int] = {}

    def seconds(self, tenant: str) -> float:
        """The pause before the next refusal of this tenant is answered."""
        now = round(self._clock() * 1_000_000)
        arrival = self._arrivals.pop(tenant, now)
        pause = min((REFUSALS.opens_us(arrival) - now) / 1_000_000, LONGEST_PAUSE)
        if pause < LONGEST_PAUSE:
            arrival = REFUSALS.after(arrival, now, 1)
        # Tenants that were refused least recently come first, and mostly have nothing to wait for any more.
        while self._arrivals and (first := next(iter(self._arrivals))) and self._arrivals[first] <= now:
            del self._arrivals[first]
        self._arrivals[tenant] = arrival
        return max(0.0, pause)


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


class BodyAdmission:
    """Counts the bytes of large bodies of each tenant that are being read or handled."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    def enter(self, tenant: str) -> "BodyShare":
        """The share that one body will hold; operators have no bound."""
        return BodyShare(self._held, tenant, None if tenant == EVERYONE else self._most)


class BodyShare:
    """The bytes that the body of one request holds, until they are released."""

    __slots__ = ("_bytes", "_held", "_most", "_tenant")

    def __init__(self, held: "Counter[str]", tenant: str, most: int | None) -> None:
        self._held = held
        self._tenant = tenant
        self._most = most
        self._bytes = 0

    def grow(self, size: int) -> None:
        """The body has so many bytes; BusyError where the tenant's hold too many. Small ones always fit."""
        if self._most is None or size <= max(self._bytes, SMALL_BODY):
            return
        if self._held[self._tenant] - self._bytes + size > self._most:
            raise BusyError(
                f"bodies of the tenant that are being read or handled have {self._most} bytes already"
            )
        self._held[self._tenant] += size - self._bytes
        self._bytes = size

    def release(self) -> None:
        """Give the share back."""
        self._held[self._tenant] -= self._bytes
        self._bytes = 0
        if not self._held[self._tenant]:
            del self._held[self._tenant]


def admit_stream(
    streams: "Iterable[Request]", new: "Request", *, most: int, share: int | None
) -> "Request | None":
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
