"""Keys that take turns: which of them are ready, and whose turn is next."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator

import msgspec

from penstock.core.job import Job
from penstock.core.limits import Declaration, KeyRule, Mode


class Lane(msgspec.Struct):
    """A key with waiting jobs and a free slot. `held_until` is set while its rate holds it back."""

    turn: int
    number: int
    held_until: int | None = None


class Lanes:
    """The keys of one queue. A key has a lane exactly while it could be served."""

    def __init__(self) -> None:
        self.rules: dict[str, KeyRule] = {}
        self.lanes: dict[str, Lane] = {}
        self.virtual = 0
        """The turn of the key served last: who becomes ready joins behind it."""
        self._number = 0
        self._arrivals_us: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[int, str]]] = {}
        self._active: dict[str, set[str]] = {}

    def wait(self, job: Job, place: int) -> None:
        """A job with a key became pending."""
        heapq.heappush(self._waiting.setdefault(job.key or "", []), (place, job.id))

    def start(self, job: Job) -> None:
        """A job with a key became active."""
        self._active.setdefault(job.key or "", set()).add(job.id)

    def end(self, job: Job) -> None:
        """A job with a key is active no longer."""
        active = self._active.get(job.key or "", set())
        active.discard(job.id)
        if not active:
            self._active.pop(job.key or "", None)

    def refresh(
        self, keys: Iterable[str], declared: Declaration, now_us: int, is_current: Callable[[str, int], bool]
    ) -> None:
        """Look again whether these keys could be served, in this order."""
        for key in dict.fromkeys(keys):
            if not self._could_run(key, declared, is_current):
                self.lanes.pop(key, None)
            else:
                self._open(key, declared, now_us)
            if self._arrivals_us.get(key, 0) <= now_us:
                self._arrivals_us.pop(key, None)

    def release(self, declared: Declaration, now_us: int) -> None:
        """Let keys go on that their rate held back until now, or until a time before a step of the clock."""
        rate = declared.key_rate
        furthest_us = math.inf if rate is None else now_us + rate.furthest_us
        held = [
            (lane.held_until, lane.number, key)
            for key, lane in self.lanes.items()
            if lane.held_until is not None and not now_us < lane.held_until * 1000 <= furthest_us
        ]
        for _, _, key in sorted(held):
            self._join(key)

    def owe_at_most(self, declared: Declaration, now_us: int) -> None:
        """Forget what another declaration's rate left behind beyond what this one's could have."""
        rate = declared.key_rate
        self._arrivals_us = {
            key: rate.owed_at_most(arrival, now_us)
            for key, arrival in self._arrivals_us.items()
            if rate is not None
        }

    def hold_again(self, declared: Declaration, now_us: int) -> None:
        """Let another declaration's rate hold keys back, and none that it does not."""
        for _, _, key in sorted((lane.held_until or 0, lane.number, key) for key, lane in self.lanes.items()):
            held_until = self._held_until(key, declared, now_us)
            if held_until is None and self.lanes[key].held_until is not None:
                self._join(key)
            self.lanes[key].held_until = held_until

    def next(self) -> str | None:
        """The key whose turn it is."""
        ready = [(lane.turn, lane.number, key) for key, lane in self.lanes.items() if lane.held_until is None]
        return min(ready)[2] if ready else None

    def first(self, key: str, is_current: Callable[[str, int], bool]) -> str | None:
        """The job of the key that waits longest."""
        waiting = self._waiting.get(key, [])
        while waiting and not is_current(waiting[0][1], waiting[0][0]):
            heapq.heappop(waiting)
        if not waiting:
            self._waiting.pop(key, None)
            return None
        return waiting[0][1]

    def serve(self, key: str, declared: Declaration, now_us: int) -> None:
        """The key's job was claimed: its turn is used, and a token of its rate."""
        lane = self.lanes[key]
        self.virtual = lane.turn
        self._number += 1
        self.lanes[key] = Lane(lane.turn + self.rule(key).stride, self._number)
        if declared.key_rate is not None:
            self._arrivals_us[key] = declared.key_rate.after(self._arrivals_us.get(key, 0), now_us, 1)
        self.lanes[key].held_until = self._held_until(key, declared, now_us)

    def rule(self, key: str) -> KeyRule:
        """What holds for the key."""
        return self.rules.get(key, KeyRule())

    def limit(self, key: str, declared: Declaration) -> int:
        """How many of the key may run at once."""
        own = self.rule(key).limit if declared.mode is Mode.DYNAMIC else None
        return own or declared.key_limit

    def active(self, key: str) -> int:
        """How many of the key run."""
        return len(self._active.get(key, ()))

    def known(self) -> Iterator[str]:
        """Keys with jobs or rules."""
        return iter(sorted({*self._waiting, *self._active, *self.rules}))

    def held_until(self) -> list[int]:
        """When keys that are held back may go on."""
        return [lane.held_until for lane in self.lanes.values() if lane.held_until is not None]

    def _could_run(self, key: str, declared: Declaration, is_current: Callable[[str, int], bool]) -> bool:
        return self.first(key, is_current) is not None and self.active(key) < self.limit(key, declared)

    def _open(self, key: str, declared: Declaration, now_us: int) -> None:
        if key in self.lanes:
            return
        self._join(key)
        self.lanes[key].held_until = self._held_until(key, declared, now_us)

    def _held_until(self, key: str, declared: Declaration, now_us: int) -> int | None:
        rate, arrival = declared.key_rate, self._arrivals_us.get(key, 0)
        if rate is None or rate.tokens(arrival, now_us) > 0:
            return None
        return -(-rate.opens_us(arrival) // 1000)

    def _join(self, key: str) -> None:
        self._number += 1
        self.lanes[key] = Lane(self.virtual + self.rule(key).stride, self._number)
