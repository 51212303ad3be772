"""When workers are added and removed: rules over samples of backlog, slots and idleness, without a clock.

A *unit* is what a scaler adds or removes: a worker process with all its slots, or one slot within a process.
Each scaler decides about its own units and looks at its own share of a backlog, so that several hosts on one
queue need no leader.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from penstock.core.errors import OptionError

MAX_UNITS: Final = 10_000


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and thresholds; times in seconds."""

    least: int = 1
    most: int = 8
    backlog_per_slot: float = 10.0
    """Waiting jobs per slot above which units are added."""
    target_wait: float | None = None
    """How long a job may wait; None where only the backlog per slot decides."""
    up_pause: float = 30.0
    down_pause: float = 120.0
    idle: float = 120.0
    """How long units have to be idle before any is removed."""
    up_share: float = 0.5
    down_share: float = 0.25


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a scaler knows of one queue at one moment."""

    queue: str
    backlog: int
    """Jobs that could be claimed now."""
    slots: int
    """Slots of this scaler's units."""
    idle: int
    """How many of those run nothing."""
    all_slots: int
    """Slots of all workers that are registered for the queue, this scaler's included."""
    arrivals: float | None = None
    """Jobs that arrive in a second, where that was measured."""
    service: float | None = None
    """Seconds that a job takes, where that was measured."""

    @property
    def share(self) -> float:
        """The part of the backlog that falls to this scaler's slots."""
        return self.backlog * self._part

    @property
    def _part(self) -> float:
        return min(1.0, self.slots / self.all_slots) if self.all_slots and self.slots else 1.0

    def wanted_slots(self, rules: Rules) -> float:
        """How many slots this scaler needs for its share, by the latency target where one can be applied."""
        if rules.target_wait is not None and self.service is not None and self.arrivals is not None:
            # Slots that keep up with what arrives, and those that work off what waits within the target.
            return self._part * self.service * (self.arrivals + self.backlog / rules.target_wait)
        return self.share / rules.backlog_per_slot


class Sample(msgspec.Struct, frozen=True):
    """All queues of a scaler at one moment, by a clock that never steps."""

    at: float
    units: int
    idle_units: int
    loads: tuple[Load, ...]


class Direction(StrEnum):
    """What a decision does."""

    UP = "up"
    DOWN = "down"


class Decision(msgspec.Struct, frozen=True):
    """From how many units to how many, and why."""

    direction: Direction
    units: int
    wanted: int
    reason: str


def check_rules(rules: Rules) -> Rules:
    """The same rules; OptionError for bounds or thresholds that cannot hold."""
    for name, value in (("min", rules.least), ("max", rules.most)):
        if not 1 <= value <= MAX_UNITS:
            raise OptionError(name, value, f"a number from 1 to {MAX_UNITS}")
    if rules.least > rules.most:
        raise OptionError("min", rules.least, f"no more than max, which is {rules.most}")
    if not rules.backlog_per_slot > 0:
        raise OptionError("backlog_per_slot", rules.backlog_per_slot, "more than 0")
    if rules.target_wait is not None and not rules.target_wait > 0:
        raise OptionError("target_wait", rules.target_wait, "more than 0 seconds")
    return rules


def units_needed(rules: Rules, loads: Sequence[Load], slots_per_unit: dict[str, int]) -> int:
    """How many units the loads call for now, within the bounds: without pauses, steps or idle time."""
    wanted = [_units_for(load, rules, slots_per_unit.get(load.queue, 1)) for load in loads]
    return min(rules.most, max(rules.least, *wanted)) if wanted else rules.least


def workers_needed(rules: Rules, *, backlog: int, active: int, slots: int) -> int:
    """How many workers with so many slots a queue calls for, for scalers that keep no samples of their own.

    Enough for what runs and for the backlog by `backlog_per_slot`, within the bounds; 0 for an idle queue.

    >>> workers_needed(Rules(least=1, most=50), backlog=650, active=20, slots=10)
    7
    >>> workers_needed(Rules(), backlog=0, active=0, slots=10)
    0
    """
    if not backlog and not active:
        return 0
    wanted = max(math.ceil(active / slots), math.ceil(backlog / (rules.backlog_per_slot * slots)))
    return min(rules.most, max(rules.least, wanted))


class Autoscaler:
    """Turns samples into decisions. Keeps when it decided last, and since when units are idle."""

    def __init__(self, rules: Rules) -> None:
        self.rules = check_rules(rules)
        self._decided_at = -math.inf
        self._idle_since: float | None = None
        self._idle_least = 0
        self._idle_checks = 0
        self._unclaimed: set[str] = set()

    def decide(self, sample: Sample) -> Decision | None:
        """What follows from a sample; None where nothing changes."""
        self._observe_idle(sample)
        held_back = self._observe_held_back(sample)
        decision = self._bounded(sample) or self._up(sample, held_back) or self._down(sample)
        if decision is not None:
            self._decided_at = sample.at
            self._idle_since = None
        return decision

    def _bounded(self, sample: Sample) -> Decision | None:
        """Units that were lost, or bounds that were changed, need no cooldown."""
        least, most = self.rules.least, self.rules.most
        if sample.units < least:
            return Decision(Direction.UP, sample.units, least, f"fewer than min {least}")
        if sample.units > most:
            return Decision(Direction.DOWN, sample.units, most, f"more than max {most}")
        return None

    def _up(self, sample: Sample, held_back: set[str]) -> Decision | None:
        rules = self.rules
        if sample.units >= rules.most or sample.at - self._decided_at < rules.up_pause:
            return None
        calls = [
            (wanted, reason)
            for load in sample.loads
            if load.queue not in held_back
            for wanted, reason in _calls_for_more(load, sample.units, rules)
        ]
        if not calls:
            return None
        wanted, reason = max(calls)
        step = max(1, math.floor(sample.units * rules.up_share))
        return Decision(Direction.UP, sample.units, min(wanted, sample.units + step, rules.most), reason)

    def _down(self, sample: Sample) -> Decision | None:
        rules = self.rules
        since = self._idle_since
        if (
            sample.units <= rules.least
            or since is None
            or self._idle_checks < 2
            or sample.at - since < rules.idle
            or sample.at - self._decided_at < rules.down_pause
        ):
            return None
        step = max(1, math.floor(sample.units * rules.down_share))
        wanted = max(rules.least, sample.units - min(step, self._idle_least))
        reason = f"{self._idle_least} of {sample.units} idle for {sample.at - since:.0f} s"
        return Decision(Direction.DOWN, sample.units, wanted, reason)

    def _observe_idle(self, sample: Sample) -> None:
        """Note since when some units are idle, and how many of them were all that time."""
        if not sample.idle_units:
            self._idle_since, self._idle_checks = None, 0
        elif self._idle_since is None:
            self._idle_since, self._idle_least, self._idle_checks = sample.at, sample.idle_units, 1
        else:
            self._idle_least = min(self._idle_least, sample.idle_units)
            self._idle_checks += 1

    def _observe_held_back(self, sample: Sample) -> set[str]:
        """Queues whose jobs wait beside idle slots at two checks: a limit or a rate holds them back."""
        idle = {load.queue for load in sample.loads if load.backlog and 2 * load.idle >= max(1, load.slots)}
        held_back, self._unclaimed = idle & self._unclaimed, idle
        return held_back


def _calls_for_more(load: Load, units: int, rules: Rules) -> list[tuple[int, str]]:
    """How many units the queue calls for, with the reason; nothing where there are enough."""
    found = []
    per_unit = max(1, load.slots // max(1, units))
    wanted = _units_for(load, rules, per_unit)
    if wanted > units:
        found.append((wanted, _reason(load, rules)))
    if load.backlog and not load.idle:
        reason = f"{load.queue}: {load.backlog} waiting and none of {load.slots} slots idle"
        found.append((max(wanted, units + 1), reason))
    return found[:1]


def _units_for(load: Load, rules: Rules, slots_per_unit: int) -> int:
    return math.ceil(load.wanted_slots(rules) / max(1, slots_per_unit))


def _reason(load: Load, rules: Rules) -> str:
    if rules.target_wait is not None and load.service is not None and load.arrivals is not None:
        return (
            f"{load.queue}: {load.backlog} waiting, {load.arrivals:.3g}/s arriving and "
            f"{load.service:.3g} s a job need {math.ceil(load.wanted_slots(rules))} slots "
            f"for a wait of {rules.target_wait:g} s"
        )
    return (
        f"{load.queue}: {load.backlog} waiting for {load.all_slots or load.slots} slots, "
        f"more than {rules.backlog_per_slot:g} a slot"
    )
