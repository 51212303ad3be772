"""Ways to spoil the told history of a keyed queue."""

from typing import Any, Final

from msgspec.structs import replace

from penstock.core.history import Declared, Rule
from penstock.core.moves import Move
from penstock.core.states import State
from tests.core.keyed_history import DECLARED, KEYED
from tests.core.mutations import Draft, Listed, listed_in

KEYED_MUTATIONS: Final[Listed] = {}
breaks = listed_in(KEYED_MUTATIONS)


@breaks(Rule.KEY_LIMIT)
def a_key_has_more_leases_than_its_limit(draft: Draft) -> None:
    draft.move(draft.at("a1", Move.COMPLETE), draft.at("a3", Move.CLAIM) + 1)
    draft.tidy()


@breaks(Rule.KEY_LIMIT)
def a_key_has_more_leases_than_its_lowered_limit(draft: Draft) -> None:
    _declare(draft, key_limit=1)


@breaks(Rule.MAX_ACTIVE)
def more_run_at_once_than_the_queue_allows(draft: Draft) -> None:
    draft.move(draft.at("d1", Move.COMPLETE), draft.at("h1", Move.CLAIM) + 1)
    draft.tidy()


@breaks(Rule.RATE)
def a_queue_starts_jobs_faster_than_its_rate(draft: Draft) -> None:
    for index in (draft.at("c1", Move.COMPLETE), draft.at("a2", Move.CLAIM)):
        draft.shift(index, at=-50)


@breaks(Rule.KEY_RATE)
def a_key_starts_jobs_faster_than_its_rate(draft: Draft) -> None:
    draft.shift(draft.at("a3", Move.CLAIM), at=-150)


@breaks(Rule.KEY_FIFO)
def the_last_of_a_key_is_claimed_first(draft: Draft) -> None:
    other = {"b1": "b2", "b2": "b1"}
    for index, event in enumerate(draft.events):
        if event.job in other and event.move is not Move.ENQUEUE:
            draft.edit(index, job=other[event.job])
    draft.executed = [replace(each, job=other.get(each.job, each.job)) for each in draft.executed]


@breaks(Rule.TURN)
def a_key_is_served_twice_while_another_waits(draft: Draft) -> None:
    for move in (Move.CLAIM, Move.COMPLETE):
        draft.move(draft.at("y1", move), draft.at("x3", Move.CLAIM))
    draft.tidy()


@breaks(Rule.TURN)
def a_key_is_served_more_often_than_its_weight_allows(draft: Draft) -> None:
    draft.limits = {KEYED: [replace(draft.limits[KEYED][0], rules={})]}


@breaks(Rule.KEYLESS)
def a_job_has_no_key(draft: Draft) -> None:
    draft.edit(draft.at("z1", Move.ENQUEUE), key=None)


@breaks(Rule.INSTANT)
def a_schedule_makes_two_jobs_for_one_instant(draft: Draft) -> None:
    draft.edit(draft.at("s2000", Move.ENQUEUE), instant=1_000)


@breaks(Rule.UNBLOCKED_TWICE)
def a_job_is_unblocked_twice(draft: Draft) -> None:
    draft.again(draft.at("p1", Move.UNBLOCK))
    draft.tidy()


@breaks(Rule.UNBLOCKED_TWICE)
def a_job_is_unblocked_after_its_end(draft: Draft) -> None:
    unblock, complete = draft.at("p1", Move.UNBLOCK), draft.at("p1", Move.COMPLETE)
    draft.events.insert(complete + 1, replace(draft.events[unblock], at=draft.events[complete].at))
    draft.live["default", "keyed", "p1"] = State.PENDING
    draft.tidy()


@breaks(Rule.FROM)
def a_blocked_job_is_claimed(draft: Draft) -> None:
    del draft.events[draft.at("p1", Move.UNBLOCK)]
    draft.tidy()


@breaks(Rule.FROM)
def a_job_that_waits_for_nothing_is_unblocked(draft: Draft) -> None:
    unblock = draft.events[draft.at("p1", Move.UNBLOCK)]
    draft.events.append(replace(unblock, job="z1", key="z", at=draft.events[-1].at))
    draft.tidy()


@breaks(Rule.TABLE)
def an_unblocked_job_runs_at_once(draft: Draft) -> None:
    draft.edit(draft.at("p1", Move.UNBLOCK), target=State.ACTIVE)
    claim = draft.at("p1", Move.CLAIM)
    draft.events = draft.events[:claim]
    known = {event.job for event in draft.events}
    draft.executed = [each for each in draft.executed if each.job != "p1"]
    draft.produced = [each for each in draft.produced if each.job in known]
    draft.live = {job: state for job, state in draft.live.items() if job[2] in known}
    draft.live["default", "keyed", "p1"] = State.ACTIVE


@breaks(Rule.TABLE)
def an_ended_job_is_replaced(draft: Draft) -> None:
    replaced = draft.events[draft.at("q1", Move.REPLACE)]
    ended = replace(replaced, job="p1", key="p", source=State.COMPLETED, target=State.DELAYED)
    draft.events.append(replace(ended, at=draft.events[-1].at))
    draft.live["default", "keyed", "p1"] = State.DELAYED
    draft.tidy()


@breaks(Rule.EARLY_PROMOTE)
def a_replaced_job_is_promoted_at_its_old_time(draft: Draft) -> None:
    first = draft.events[draft.at("q1", Move.ENQUEUE)].visible_at or 0
    for index in range(draft.at("q1", Move.PROMOTE), len(draft.events)):
        draft.edit(index, at=first)


def _declare(draft: Draft, **changes: Any) -> None:
    (old,) = draft.limits[KEYED]
    draft.limits = {KEYED: [Declared(old.at, replace(DECLARED, **changes), old.rules)]}
