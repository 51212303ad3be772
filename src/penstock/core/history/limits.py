"""The limits of one queue and the turns of its keys, held against every claim."""

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable

import msgspec

from penstock.core.events import Event
from penstock.core.history.life import Life, Tell
from penstock.core.history.rules import Declared, Rule
from penstock.core.limits import STRIDE, Declaration, KeyRule, Mode, Rate
from penstock.core.moves import Move
from penstock.core.states import State

_MS_US = 1_000
"""Events carry milliseconds and stores count microseconds: a rate is exceeded by more than one of these."""


class Lane(msgspec.Struct, gc=False):
    """One key: who waits in which order, how many run, and when it was served.

    `loose` are those whose place cannot be told. The next claim is on time at `arrival_us` at the earliest
    and at `latest_us` at the latest. `is_unsure` is set where the rules changed while it waited: its turn
    can be told again from its next one on.
    """

    line: OrderedDict[str, bool]
    loose: set[str]
    serves: deque[int]
    active: int = 0
    arrival_us: int = 0
    latest_us: int = 0
    held_us: int = 0
    is_unsure: bool = False


class Limits:
    """Follows the leases and the waiting jobs of a queue whose declarations are known.

    What is not known is in favour of the store: turns are not judged in a log with a gap, and nothing is in
    the millisecond in which a declaration changed.
    """

    def __init__(self, declared: Iterable[Declared], *, is_whole: bool) -> None:
        self._ahead = deque(sorted(declared, key=lambda each: each.at))
        self._declared = Declaration()
        self.has_keys = False
        """True while jobs wait by key, and not by tier."""
        self._rules: dict[str, KeyRule] = {}
        self._changed_at = -1
        self._active = 0
        self._arrival_us = 0
        self._claims = 0
        self._lanes: dict[str, Lane] = {}
        self._idle: set[str] = set()
        self._waits: dict[int, OrderedDict[str, int]] = {}
        """By what a turn costs the key: ready keys, and how many claims there were when they became ready."""
        self._held: list[tuple[int, str]] = []
        self._judges_turns = is_whole

    def follow(self, job: str, life: Life, event: Event, tell: Tell) -> None:
        """Hold a claim against the limits, and take over what the event changes."""
        if self._ahead and self._ahead[0].at <= event.at:
            self._advance(event.at)
        if event.move is Move.CLAIM:
            self._claim(job, life, event, tell)
        elif life.is_leased and event.target is not State.ACTIVE:
            self._free(life)
        if self.has_keys:
            self._stand(job, life, event, tell)

    def _stand(self, job: str, life: Life, event: Event, tell: Tell) -> None:
        """Put the job where it waits by its key, and look at the key again."""
        if event.key is None:
            if event.move is Move.ENQUEUE and self._is_sure(event):
                tell(Rule.KEYLESS, event, f"enqueued without a key into a {self._declared.mode} queue")
            return
        if event.move is not Move.CLAIM and event.move is not Move.ENQUEUE:
            self._step_out(job, life)
        if event.target is State.PENDING:
            self._join(job, life, event)
        self._refresh(event.key, event.at)

    def leave(self, job: str, life: Life) -> None:
        """It neither waits nor runs any longer."""
        self._step_out(job, life)
        if life.is_leased:
            self._free(life)

    def _step_out(self, job: str, life: Life) -> None:
        lane = None if life.key is None else self._lanes.get(life.key)
        if lane is not None and lane.line.pop(job, None) is None:
            lane.loose.discard(job)

    def _free(self, life: Life) -> None:
        life.is_leased = False
        self._active -= 1
        lane = None if life.key is None else self._lanes.get(life.key)
        if lane is not None and lane.active:
            lane.active -= 1

    def removed(self, job: str, life: Life, at: int) -> None:
        """The job is gone."""
        self.leave(job, life)
        if self.has_keys and life.key is not None:
            self._refresh(life.key, at)

    def lose_track(self) -> None:
        """Events are missing: whose turn it is cannot be told."""
        self._judges_turns = False

    def _claim(self, job: str, life: Life, event: Event, tell: Tell) -> None:
        declared, is_sure = self._declared, self._is_sure(event)
        if declared.max_active is not None and is_sure and self._active >= declared.max_active:
            tell(Rule.MAX_ACTIVE, event, f"claimed while {self._active} of {declared.max_active} ran")
        if declared.rate is not None:
            taken = _take(declared.rate, self._arrival_us, event.at)
            if taken is None and is_sure:
                tell(Rule.RATE, event, f"claimed sooner than {_said(declared.rate)} allow")
            self._arrival_us = self._arrival_us if taken is None else taken
        if self.has_keys and event.key is not None:
            self._claim_of_key(job, event.key, event, tell, is_sure=is_sure)
            self._step_out(job, life)
        if not life.is_leased:
            life.is_leased = True
            self._active += 1
            if self.has_keys and event.key is not None:
                self._lane(event.key).active += 1
        self._claims += 1

    def _claim_of_key(self, job: str, key: str, event: Event, tell: Tell, *, is_sure: bool) -> None:
        lane, declared = self._lane(key), self._declared
        limit = self._limit(key)
        if is_sure and lane.active >= limit:
            tell(Rule.KEY_LIMIT, event, f"claimed while {lane.active} of {limit} of key {key!r} ran")
        if job in lane.line and (first := next(iter(lane.line))) != job:
            tell(Rule.KEY_FIFO, event, f"claimed before {first} of its key {key!r}, which came first")
            # A key that was passed over is reported once.
            lane.line.pop(first)
            lane.loose.add(first)
        if declared.key_rate is not None:
            taken = _take(declared.key_rate, lane.arrival_us, event.at)
            if taken is None and is_sure:
                says = f"claimed sooner than {_said(declared.key_rate)} of key {key!r} allow"
                tell(Rule.KEY_RATE, event, says)
            lane.arrival_us = lane.arrival_us if taken is None else taken
            lane.latest_us = declared.key_rate.after(lane.latest_us, (event.at + 1) * _MS_US, 1)
        self._release(event.at)
        if self._judges_turns and is_sure:
            self._check_turn(key, lane, event, tell)
        lane.is_unsure = False
        self._wait(key, None)
        longest = 1 + (STRIDE - 1) // self._rule(key).stride
        if lane.serves.maxlen != longest:
            lane.serves = deque(lane.serves, longest)
        lane.serves.append(self._claims)

    def _check_turn(self, key: str, lane: Lane, event: Event, tell: Tell) -> None:
        stride = self._rule(key).stride
        for cost, waiting in self._waits.items():
            # Within the virtual time that the other waits for at most, this key has so many turns.
            turns = 1 + (cost - 1) // stride
            oldest = next((each for each in waiting if each != key), None)
            if oldest is None or len(lane.serves) < turns or lane.serves[-turns] < waiting[oldest]:
                continue
            says = f"key {key!r} was served {turns + 1} times while key {oldest!r} waited for its turn"
            tell(Rule.TURN, event, says)
            del waiting[oldest]
            self._lanes[oldest].is_unsure = True

    def _join(self, job: str, life: Life, event: Event) -> None:
        life.key = event.key
        lane = self._lane(event.key or "")
        if event.move is Move.REPLACE:
            # It keeps or loses its place as the store likes.
            lane.loose.add(job)
            return
        lane.line[job] = True
        if event.move is Move.RELEASE or event.move is Move.EXPIRE:
            lane.line.move_to_end(job, last=False)

    def _refresh(self, key: str, at: int) -> None:
        """Look again whether the key could be served."""
        lane = self._lanes.get(key)
        if lane is None:
            return
        waits = bool(lane.line or lane.loose)
        if not waits and not lane.active:
            self._idle.add(key)
        if not waits or lane.is_unsure or lane.active >= self._limit(key):
            self._wait(key, None)
            if self._idle and not any(self._waits.values()):
                self._forget(at)
            return
        rate = self._declared.key_rate
        opens_us = 0 if rate is None else rate.opens_us(lane.latest_us)
        if opens_us > at * _MS_US:
            self._wait(key, None)
            if lane.held_us != opens_us:
                lane.held_us = opens_us
                heapq.heappush(self._held, (opens_us, key))
        elif key not in self._waits.get(self._rule(key).stride, ()):
            self._wait(key, self._claims)

    def _release(self, at: int) -> None:
        """Let keys go on whose rate held them back until now."""
        while self._held and self._held[0][0] <= at * _MS_US:
            _, key = heapq.heappop(self._held)
            self._refresh(key, at)

    def _wait(self, key: str, since: int | None) -> None:
        """The key waits for its turn since so many claims; None when it does not."""
        waiting = self._waits.setdefault(self._rule(key).stride, OrderedDict())
        if since is None:
            waiting.pop(key, None)
        else:
            waiting[key] = since

    def _forget(self, at: int) -> None:
        """Forget how keys were served once no job waits: turns begin anew then."""
        for key in self._idle:
            lane = self._lanes.get(key)
            if lane is None or lane.line or lane.loose or lane.active or lane.latest_us > at * _MS_US:
                continue
            del self._lanes[key]
        self._idle = {key for key in self._idle if key in self._lanes}

    def _advance(self, at: int) -> None:
        while self._ahead and self._ahead[0].at <= at:
            new = self._ahead.popleft()
            if new.declaration.rate != self._declared.rate:
                self._arrival_us = 0
            for lane in self._lanes.values():
                lane.is_unsure = True
                if new.declaration.key_rate != self._declared.key_rate:
                    lane.arrival_us = 0
            self._waits.clear()
            self._declared, self._rules, self._changed_at = new.declaration, new.rules, new.at
            self.has_keys = new.declaration.mode.has_keys

    def _is_sure(self, event: Event) -> bool:
        return event.at > self._changed_at

    def _lane(self, key: str) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(OrderedDict(), set(), deque())
        return lane

    def _limit(self, key: str) -> int:
        own = self._rule(key).limit if self._declared.mode is Mode.DYNAMIC else None
        return own or self._declared.key_limit

    def _rule(self, key: str) -> KeyRule:
        return self._rules.get(key, _PLAIN)


_PLAIN = KeyRule()


def _take(rate: Rate, arrival_us: int, at: int) -> int | None:
    """When the next would be on time after a claim at this time; None when it came too soon."""
    now_us = at * _MS_US
    ahead = max(arrival_us, now_us) - now_us
    if ahead > (rate.burst - 1) * rate.interval_us + _MS_US:
        return None
    return now_us + ahead + rate.interval_us


def _said(rate: Rate) -> str:
    return f"{rate.count} per {rate.per_ms} ms with {rate.burst} at once"
