"""When workers are added and removed, over a virtual clock: bursts, trickles, idle nights, several hosts."""

import math
from collections.abc import Callable, Iterator

import pytest

from penstock.core.errors import OptionError
from penstock.core.scaling import (
    Autoscaler,
    Decision,
    Direction,
    Load,
    Rules,
    Sample,
    check_rules,
    units_needed,
)

SLOTS = 10
"""Slots of a unit."""
CHECK = 5.0
"""Seconds between two samples."""


class Fleet:
    """Hosts that work on one queue, each with a scaler of its own, in steps of one second."""

    def __init__(self, hosts: int = 1, *, service: float = 1.0, **rules: float) -> None:
        self.scalers = [Autoscaler(Rules(**rules)) for _ in range(hosts)]  # type: ignore[arg-type]
        self.units = [scaler.rules.least for scaler in self.scalers]
        self.service = service
        self.backlog = 0.0
        self.running = [0.0] * hosts
        self.now = 0.0
        self.decisions: list[tuple[float, int, Decision]] = []

    def run(self, seconds: float, arrivals: Callable[[float], float] = lambda _: 0.0) -> None:
        """Let the fleet work, and each of its scalers decide at every check."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.backlog += arrivals(self.now)
            for host, units in enumerate(self.units):
                done = min(self.backlog, units * SLOTS / self.service)
                self.backlog -= done
                self.running[host] = min(units * SLOTS, done * self.service)
            if self.now % CHECK == 0:
                self._check()

    def _check(self) -> None:
        total = sum(self.units) * SLOTS
        for host, scaler in enumerate(self.scalers):
            slots = self.units[host] * SLOTS
            busy = math.ceil(self.running[host])
            load = Load(
                queue="mail", backlog=int(self.backlog), slots=slots, idle=slots - busy, all_slots=total
            )
            sample = Sample(self.now, self.units[host], (slots - busy) // SLOTS, (load,))
            if decision := scaler.decide(sample):
                self.decisions.append((self.now, host, decision))
                self.units[host] = decision.wanted

    def steps(self) -> Iterator[tuple[float, Decision, float]]:
        """Each decision with the time since the one before of the same host."""
        last: dict[int, float] = {}
        for at, host, decision in self.decisions:
            yield at, decision, at - last.get(host, -math.inf)
            last[host] = at


def keeps_to_the_rules(fleet: Fleet) -> bool:
    """Steps and pauses as the rules say, for every decision."""
    for _, decision, pause in fleet.steps():
        change = abs(decision.wanted - decision.units)
        if decision.direction is Direction.UP:
            assert pause >= 30, decision
            assert change <= max(1, decision.units // 2), decision
        else:
            assert pause >= 120, decision
            assert change <= max(1, decision.units // 4), decision
        assert decision.reason
    return True


def test_a_burst_is_met_in_steps_of_half_and_given_back_in_steps_of_a_quarter() -> None:
    fleet = Fleet(most=8)
    fleet.backlog = 20_000
    fleet.run(300)
    assert max(decision.wanted for _, _, decision in fleet.decisions) == 8
    fleet.run(3_600)

    assert fleet.units == [1]
    assert keeps_to_the_rules(fleet)
    ups = [each.wanted for _, _, each in fleet.decisions if each.direction is Direction.UP]
    assert ups == [
        2,
        3,
        4,
        6,
        8,
    ]
    assert fleet.decisions[0][2].reason == "mail: 19950 waiting for 10 slots, more than 10 a slot"


def test_a_trickle_changes_nothing() -> None:
    fleet = Fleet(most=8)
    fleet.run(7_200, lambda _: 3.0)

    assert fleet.decisions == []


def test_an_idle_night_ends_at_the_minimum() -> None:
    fleet = Fleet(least=2, most=16)
    fleet.units = [16]
    fleet.run(8 * 3_600)

    assert fleet.units == [2]
    assert keeps_to_the_rules(fleet)
    assert all("idle for" in decision.reason for _, _, decision in fleet.decisions)
    assert fleet.decisions[0][0] >= 120


def test_load_that_comes_and_goes_every_minute_does_not_flap() -> None:
    fleet = Fleet(most=8)
    fleet.run(3_600, lambda now: 60.0 if now % 60 < 10 else 0.0)

    downs = [each for _, _, each in fleet.decisions if each.direction is Direction.DOWN]
    assert keeps_to_the_rules(fleet)
    assert len(downs) <= 1


def test_three_hosts_meet_a_backlog_together_and_none_alone() -> None:
    fleet = Fleet(3, most=8)
    fleet.backlog = 20_000
    fleet.run(120)

    assert keeps_to_the_rules(fleet)
    assert max(fleet.units) - min(fleet.units) <= 1
    fleet.run(2 * 3_600)
    assert fleet.units == [1, 1, 1]


def test_each_host_looks_at_its_own_share() -> None:
    load = Load(queue="mail", backlog=600, slots=10, idle=0, all_slots=30)

    assert load.share == 200
    assert units_needed(Rules(most=50), [load], {"mail": 10}) == 2


def test_units_that_died_are_made_again_without_a_pause() -> None:
    scaler = Autoscaler(Rules(least=2))
    idle = Load(queue="mail", backlog=0, slots=20, idle=20, all_slots=20)
    assert scaler.decide(Sample(0.0, 1, 1, (idle,))) is not None
    decision = scaler.decide(Sample(1.0, 0, 0, (idle,)))

    assert decision == Decision(Direction.UP, 0, 2, "fewer than min 2")


def test_a_backlog_that_idle_slots_leave_alone_adds_nothing() -> None:
    """A rate or a limit holds it back: more slots would be as idle."""
    scaler = Autoscaler(Rules(most=8))
    held = Load(queue="mail", backlog=5_000, slots=10, idle=9, all_slots=10)
    first = scaler.decide(Sample(0.0, 1, 0, (held,)))
    later = [scaler.decide(Sample(at, 1, 0, (held,))) for at in (60.0, 120.0, 180.0)]

    assert first is not None
    assert later == [None, None, None]


def test_idle_units_go_only_after_two_checks_of_two_minutes() -> None:
    scaler = Autoscaler(Rules(most=8))
    idle = Load(queue="mail", backlog=0, slots=40, idle=40, all_slots=40)
    busy = Load(queue="mail", backlog=0, slots=40, idle=0, all_slots=40)

    assert scaler.decide(Sample(0.0, 4, 4, (idle,))) is None
    assert scaler.decide(Sample(119.0, 4, 4, (idle,))) is None
    assert scaler.decide(Sample(119.5, 4, 0, (busy,))) is None
    assert scaler.decide(Sample(300.0, 4, 4, (idle,))) is None, "one check is not two"
    decision = scaler.decide(Sample(420.0, 4, 3, (idle,)))
    assert decision == Decision(Direction.DOWN, 4, 3, "3 of 4 idle for 120 s")


def test_no_more_units_go_than_were_idle_all_the_time() -> None:
    scaler = Autoscaler(Rules(most=40))
    load = Load(queue="mail", backlog=0, slots=400, idle=20, all_slots=400)
    scaler.decide(Sample(0.0, 40, 2, (load,)))
    scaler.decide(Sample(60.0, 40, 9, (load,)))
    decision = scaler.decide(Sample(120.0, 40, 9, (load,)))

    assert decision is not None
    assert decision.wanted == 38


def test_a_target_for_the_wait_asks_for_what_keeps_up_and_works_off() -> None:
    rules = Rules(most=50, target_wait=5.0)
    load = Load(queue="mail", backlog=100, slots=10, idle=0, all_slots=10, arrivals=8.0, service=2.0)

    assert load.wanted_slots(rules) == pytest.approx(2.0 * 8.0 + 100 * 2.0 / 5.0)
    assert units_needed(rules, [load], {"mail": 10}) == 6
    decision = Autoscaler(rules).decide(Sample(0.0, 1, 0, (load,)))
    assert decision is not None
    assert decision.wanted == 2
    assert "for a wait of 5 s" in decision.reason


def test_without_measurements_a_target_goes_by_the_backlog() -> None:
    load = Load(queue="mail", backlog=100, slots=1, idle=0, all_slots=1)

    assert load.wanted_slots(Rules(target_wait=5.0)) == 10


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(least=5, most=2), "min: found 5, wanted no more than max, which is 2"),
        (Rules(least=0), "min: found 0"),
        (Rules(most=100_000), "max: found 100000"),
        (Rules(backlog_per_slot=0), "backlog_per_slot: found 0"),
        (Rules(target_wait=-1.0), "target_wait: found -1"),
    ],
)
def test_rules_that_cannot_hold_are_refused(rules: Rules, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_rules(rules)
