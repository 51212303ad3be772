"""Ways to spoil an honest history, each named for the fault it makes and marked with the rules it breaks."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.core.events import Event
from penstock.core.history import Executed, Produced, Rule, Verdict, check
from penstock.core.moves import Move
from penstock.core.states import State
from tests.core.histories import MAIL, History


class Draft:
    """A history to spoil. `tidy` makes numbers and versions fit again, so that only the fault shows."""

    def __init__(self, history: History) -> None:
        self.events = list(history.events)
        self.produced = list(history.produced)
        self.executed = list(history.executed)
        self.live = dict(history.live)
        self.limits = dict(history.limits)

    def at(self, job: str, move: Move, nth: int = 0) -> int:
        """Where the job's nth move of that kind stands."""
        found = [i for i, event in enumerate(self.events) if event.job == job and event.move is move]
        return found[nth]

    def edit(self, index: int, **fields: object) -> None:
        """Say something else in an event."""
        self.events[index] = msgspec.structs.replace(self.events[index], **fields)

    def shift(self, index: int, **by: int) -> None:
        """Add to numbers of an event."""
        self.edit(index, **{name: getattr(self.events[index], name) + more for name, more in by.items()})

    def again(self, index: int, **fields: object) -> int:
        """The event once more right after itself, with changes; where it stands."""
        self.events.insert(index + 1, msgspec.structs.replace(self.events[index], **fields))
        return index + 1

    def move(self, index: int, to: int) -> None:
        """Take an event out and put it in front of another; both counted before."""
        event = self.events.pop(index)
        self.events.insert(to if to < index else to - 1, event)

    def tidy(self) -> None:
        """Number events, and versions of each job, in the order they stand in; times never go back."""
        versions: Counter[str] = Counter()
        at = 0
        for index, event in enumerate(self.events):
            at = max(at, event.at)
            self.edit(index, seq=index + 1, at=at)
            if event.job is not None:
                if event.move is Move.ENQUEUE:
                    versions[event.job] = 0
                versions[event.job] += 1
                self.edit(index, version=versions[event.job])

    def check(self) -> Verdict:
        """What the checker says to it."""
        return check(
            self.events,
            produced=self.produced,
            executed=self.executed,
            live=self.live,
            limits=self.limits,
        )


Mutation = Callable[[Draft], None]
Listed = dict[str, tuple[Mutation, frozenset[Rule]]]


def listed_in(mutations: Listed) -> Callable[..., Callable[[Mutation], Mutation]]:
    """A decorator that lists a mutation with the rules it breaks: these, and no others."""

    def breaks(*rules: Rule) -> Callable[[Mutation], Mutation]:
        def listed(mutation: Mutation) -> Mutation:
            mutations[mutation.__name__] = (mutation, frozenset(rules))
            return mutation

        return listed

    return breaks


MUTATIONS: Final[Listed] = {}
breaks = listed_in(MUTATIONS)


# The log


@breaks(Rule.SEQ_GAP, Rule.VERSION, Rule.FROM)
def an_event_is_dropped(draft: Draft) -> None:
    del draft.events[draft.at("later", Move.PROMOTE)]


@breaks(Rule.SEQ_GAP)
def a_number_is_left_out(draft: Draft) -> None:
    for index in range(draft.at("refused", Move.FAIL), len(draft.events)):
        draft.shift(index, seq=1)


@breaks(Rule.SEQ_TWICE)
def an_event_stands_twice(draft: Draft) -> None:
    draft.again(draft.at("plain", Move.CLAIM))


@breaks(Rule.SEQ_TWICE)
def an_early_event_comes_again_at_the_end(draft: Draft) -> None:
    draft.events.append(draft.events[draft.at("plain", Move.ENQUEUE)])


@breaks(Rule.SEQ_GAP, Rule.SEQ_ORDER)
def two_events_of_different_jobs_are_swapped(draft: Draft) -> None:
    draft.move(draft.at("waiting", Move.ENQUEUE), draft.at("running", Move.CLAIM))
    draft.edit(draft.at("waiting", Move.ENQUEUE), at=draft.events[draft.at("running", Move.CLAIM)].at)


@breaks(
    Rule.SEQ_GAP,
    Rule.SEQ_ORDER,
    Rule.TIME_BACK,
    Rule.VERSION,
    Rule.STALE,
    Rule.AFTER_END,
    Rule.NO_EXECUTION,
    Rule.STORE_STATE,
)
def two_events_of_one_job_are_swapped(draft: Draft) -> None:
    draft.move(draft.at("plain", Move.COMPLETE), draft.at("plain", Move.CLAIM))


@breaks(Rule.TIME_BACK)
def time_goes_back(draft: Draft) -> None:
    draft.shift(draft.at("second", Move.CLAIM), at=-1_000)


@breaks(
    Rule.SEQ_GAP,
    Rule.VERSION,
    Rule.STALE,
    Rule.NO_ENQUEUE,
    Rule.NO_CLAIM,
    Rule.NO_EXECUTION,
    Rule.NOT_IN_STORE,
)
def an_event_is_written_to_another_tenant(draft: Draft) -> None:
    draft.edit(draft.at("plain", Move.CLAIM), tenant="stranger")


@breaks(Rule.UNKNOWN)
def an_event_is_of_a_later_version(draft: Draft) -> None:
    draft.edit(draft.at("running", Move.CLAIM), v=2, move="teleport")
    draft.executed = [each for each in draft.executed if each.job != "running"]


@breaks(Rule.NOTHING_READ, Rule.LOST, Rule.NO_CLAIM, Rule.NOT_IN_LOG)
def nothing_is_read(draft: Draft) -> None:
    draft.events.clear()


# The life of a job


@breaks(Rule.NO_ENQUEUE)
def an_enqueue_was_never_written(draft: Draft) -> None:
    del draft.events[draft.at("running", Move.ENQUEUE)]
    draft.tidy()
    draft.shift(draft.at("running", Move.CLAIM), version=1)


@breaks(Rule.ID_TAKEN)
def an_id_is_used_again_while_its_job_is_there(draft: Draft) -> None:
    del draft.events[draft.at("again", Move.DELETE)]
    draft.tidy()


@breaks(Rule.VERSION)
def a_version_is_left_out(draft: Draft) -> None:
    for index, event in enumerate(draft.events):
        if event.job == "tried" and (event.version or 0) > 3:
            draft.shift(index, version=1)


@breaks(Rule.VERSION)
def a_job_begins_with_version_two(draft: Draft) -> None:
    draft.shift(draft.at("waiting", Move.ENQUEUE), version=1)


@breaks(Rule.TABLE)
def a_claim_leads_to_completed(draft: Draft) -> None:
    draft.edit(draft.at("running", Move.CLAIM), target=State.COMPLETED)
    draft.live["default", "mail", "running"] = State.COMPLETED


@breaks(Rule.TABLE, Rule.NOT_IN_STORE)
def a_cancel_starts_a_waiting_job(draft: Draft) -> None:
    at = draft.again(
        draft.at("waiting", Move.ENQUEUE), move=Move.CANCEL, source=State.PENDING, target=State.ACTIVE
    )
    draft.edit(at, idempotency_key=None, max_attempts=None)
    draft.tidy()
    del draft.live["default", "mail", "waiting"]


@breaks(Rule.TABLE)
def a_job_is_cancelled_by_a_retry_that_nobody_asked_to_cancel(draft: Draft) -> None:
    del draft.events[draft.at("stopped", Move.CANCEL)]
    draft.tidy()


@breaks(Rule.TABLE)
def a_running_job_is_deleted_with_others(draft: Draft) -> None:
    prune = len(draft.events) - 1
    draft.edit(prune, move=Move.DELETE, jobs=["pruned", "running"])
    del draft.live["default", "mail", "running"]


@breaks(Rule.TABLE)
def a_dead_job_is_pruned(draft: Draft) -> None:
    redrive = draft.at("tried", Move.REDRIVE)
    draft.events = [*draft.events[:redrive], _prune(draft.events[redrive], "tried")]
    draft.executed = [each for each in draft.executed if each.job in {"plain", "tried"}][:-1]
    draft.produced = draft.produced[:2]
    draft.live = {("default", "mail", "plain"): State.COMPLETED}


@breaks(Rule.NO_ENQUEUE)
def a_job_is_pruned_that_is_not_there(draft: Draft) -> None:
    draft.edit(len(draft.events) - 1, jobs=["pruned", "nobody"])


@breaks(Rule.TABLE, Rule.FROM)
def an_event_starts_from_another_state(draft: Draft) -> None:
    draft.edit(draft.at("first", Move.CLAIM), source=State.DELAYED)


@breaks(Rule.FROM)
def a_delayed_job_is_claimed_without_promotion(draft: Draft) -> None:
    del draft.events[draft.at("later", Move.PROMOTE, 1)]
    draft.tidy()


@breaks(Rule.AFTER_END)
def a_completed_job_runs_again(draft: Draft) -> None:
    claim, complete = draft.at("plain", Move.CLAIM), draft.at("plain", Move.COMPLETE)
    rerun = draft.events[claim]
    draft.events.insert(complete + 1, rerun)
    draft.shift(complete + 1, fence=1_000_000, delivery=1)
    draft.events.append(draft.events[complete])
    draft.shift(len(draft.events) - 1, fence=1_000_000, delivery=1)
    draft.executed.append(Executed(MAIL, "plain", 2, (rerun.fence or 0) + 1_000_000))
    draft.tidy()


@breaks(Rule.ENDED_TWICE)
def a_job_ends_twice(draft: Draft) -> None:
    draft.again(draft.at("plain", Move.COMPLETE))
    draft.tidy()


@breaks(Rule.ENDED_TWICE, Rule.EARLY_BURY)
def a_completed_job_is_buried_by_its_lease(draft: Draft) -> None:
    draft.again(draft.at("plain", Move.COMPLETE), move=Move.BURY, target=State.DEAD)
    draft.live["default", "mail", "plain"] = State.DEAD
    draft.tidy()


@breaks(Rule.AFTER_END, Rule.DRIVE, Rule.ATTEMPT)
def a_dead_job_comes_back_without_redrive(draft: Draft) -> None:
    del draft.events[draft.at("tried", Move.REDRIVE)]
    draft.tidy()


@breaks(Rule.DRIVE)
def a_redrive_skips_a_drive(draft: Draft) -> None:
    for index in range(draft.at("tried", Move.REDRIVE), len(draft.events)):
        if draft.events[index].job == "tried":
            draft.shift(index, drive=1)


@breaks(Rule.DRIVE)
def the_drive_grows_without_redrive(draft: Draft) -> None:
    draft.shift(draft.at("running", Move.CLAIM), drive=1)


@breaks(Rule.TABLE)
def a_completed_job_is_redriven(draft: Draft) -> None:
    at = draft.again(draft.at("plain", Move.COMPLETE), move=Move.REDRIVE, source=State.COMPLETED)
    draft.edit(at, target=State.PENDING, drive=2, delivery=None, attempt=None, fence=None, worker=None)
    draft.edit(at, priority=0)
    draft.live["default", "mail", "plain"] = State.PENDING
    draft.tidy()


@breaks(Rule.EARLY_PROMOTE)
def a_job_is_promoted_before_its_time(draft: Draft) -> None:
    enqueue = draft.at("later", Move.ENQUEUE)
    draft.shift(enqueue, visible_at=1_000_000)


@breaks(Rule.CANCEL_IGNORED)
def a_cancel_that_was_asked_for_is_ignored(draft: Draft) -> None:
    draft.edit(draft.at("stopped", Move.RETRY), target=State.DELAYED)
    draft.live["default", "mail", "stopped"] = State.DELAYED


# Leases and attempts


@breaks(Rule.OVERLAP, Rule.STALE, Rule.NO_EXECUTION)
def a_job_is_claimed_while_it_runs(draft: Draft) -> None:
    at = draft.again(draft.at("plain", Move.CLAIM), worker="w2")
    draft.shift(at, fence=1, delivery=1)
    draft.tidy()


@breaks(Rule.DELIVERY, Rule.STALE, Rule.NO_CLAIM, Rule.NO_EXECUTION)
def a_claim_skips_a_delivery(draft: Draft) -> None:
    draft.shift(draft.at("first", Move.CLAIM), delivery=1)


@breaks(Rule.DELIVERY)
def a_whole_delivery_counts_too_much(draft: Draft) -> None:
    draft.shift(draft.at("first", Move.CLAIM), delivery=1)
    draft.shift(draft.at("first", Move.COMPLETE), delivery=1)
    draft.executed = [_delivered(each, 2) if each.job == "first" else each for each in draft.executed]


@breaks(Rule.FENCE, Rule.EXECUTED_TWICE)
def a_fence_is_used_again(draft: Draft) -> None:
    older = draft.events[draft.at("tried", Move.CLAIM, 2)].fence
    newest = draft.at("tried", Move.CLAIM, 3)
    fence = draft.events[newest].fence
    draft.edit(newest, fence=older)
    draft.edit(draft.at("tried", Move.COMPLETE), fence=older)
    draft.executed = [_fenced(each, older or 0) if each.fence == fence else each for each in draft.executed]


@breaks(Rule.FENCE)
def a_fence_goes_back(draft: Draft) -> None:
    claim, bury = draft.at("tried", Move.CLAIM, 2), draft.at("tried", Move.BURY)
    fence = draft.events[claim].fence
    draft.edit(claim, fence=7)
    draft.edit(bury, fence=7)
    draft.executed = [_fenced(each, 7) if each.fence == fence else each for each in draft.executed]


@breaks(Rule.STALE)
def a_job_is_settled_under_an_older_fence(draft: Draft) -> None:
    older = draft.events[draft.at("later", Move.CLAIM)].fence
    draft.edit(draft.at("later", Move.COMPLETE), fence=older)


@breaks(Rule.STALE)
def a_job_is_settled_by_another_worker(draft: Draft) -> None:
    draft.edit(draft.at("first", Move.COMPLETE), worker="w2")


@breaks(Rule.STALE)
def progress_comes_under_an_older_delivery(draft: Draft) -> None:
    draft.shift(draft.at("later", Move.PROGRESS), delivery=-1)


@breaks(Rule.STALE, Rule.AFTER_END, Rule.ATTEMPT)
def a_job_is_completed_after_its_lease_was_taken_away(draft: Draft) -> None:
    expire = draft.at("tried", Move.EXPIRE)
    draft.again(expire, move=Move.COMPLETE, target=State.COMPLETED, reason=None, error=None, visible_at=None)
    draft.tidy()


@breaks(Rule.EARLY_EXPIRE)
def a_lease_is_taken_away_before_its_deadline(draft: Draft) -> None:
    draft.shift(draft.at("tried", Move.EXPIRE), at=-1)


@breaks(Rule.ATTEMPT)
def a_claim_has_another_attempt_number(draft: Draft) -> None:
    draft.shift(draft.at("running", Move.CLAIM), attempt=1)


@breaks(Rule.ATTEMPT)
def a_failure_has_another_attempt_number(draft: Draft) -> None:
    draft.shift(draft.at("tried", Move.RETRY), attempt=1)


@breaks(Rule.EXHAUSTED, Rule.ATTEMPTS)
def a_job_is_tried_once_more_than_allowed(draft: Draft) -> None:
    draft.edit(draft.at("tried", Move.ENQUEUE), max_attempts=2)


@breaks(Rule.EARLY_BURY)
def a_job_is_buried_with_attempts_left(draft: Draft) -> None:
    draft.edit(draft.at("tried", Move.ENQUEUE), max_attempts=4)


@breaks(Rule.EARLY_BURY)
def a_lease_that_runs_out_buries_a_job_with_attempts_left(draft: Draft) -> None:
    expire = draft.at("tried", Move.EXPIRE)
    draft.edit(expire, target=State.DEAD, visible_at=None)
    draft.events = draft.events[: expire + 1]
    draft.executed = draft.executed[:3]
    draft.produced = draft.produced[:2]
    draft.live = {("default", "mail", "plain"): State.COMPLETED, ("default", "mail", "tried"): State.DEAD}


# The queue


@breaks(Rule.FIFO)
def the_last_that_came_is_claimed_first(draft: Draft) -> None:
    for job in ("second", "first"):
        draft.move(draft.at(job, Move.CLAIM), draft.at("low", Move.CLAIM))
        draft.move(draft.at(job, Move.COMPLETE), draft.at("low", Move.CLAIM))
    draft.tidy()


@breaks(Rule.FIFO)
def a_released_job_goes_to_the_back(draft: Draft) -> None:
    other = draft.at("first", Move.ENQUEUE)
    draft.move(other, draft.at("later", Move.CLAIM))
    for move in (Move.CLAIM, Move.COMPLETE):
        draft.move(draft.at("first", move), draft.at("later", Move.CLAIM, 1))
    draft.tidy()


@breaks(Rule.TIER)
def a_lower_tier_is_claimed_first(draft: Draft) -> None:
    for move in (Move.CLAIM, Move.COMPLETE):
        draft.move(draft.at("low", move), draft.at("urgent", Move.CLAIM))
    draft.tidy()


@breaks(Rule.KEY_TWICE)
def a_key_makes_two_jobs(draft: Draft) -> None:
    draft.edit(draft.at("due", Move.ENQUEUE), idempotency_key="k-waiting")


# Against other records


@breaks(Rule.LOST)
def a_produced_job_is_lost(draft: Draft) -> None:
    draft.produced.append(Produced(MAIL, "promised"))


@breaks(Rule.KEY_OTHER)
def a_producer_gets_a_job_of_another_key(draft: Draft) -> None:
    draft.produced.append(Produced(MAIL, "plain", "k-other"))


@breaks(Rule.NO_CLAIM)
def a_job_is_executed_without_a_claim(draft: Draft) -> None:
    draft.executed.append(Executed(MAIL, "waiting", 1, 1))


@breaks(Rule.NO_EXECUTION)
def a_job_is_completed_without_execution(draft: Draft) -> None:
    draft.executed = [each for each in draft.executed if each.job != "plain"]


@breaks(Rule.EXECUTED_TWICE)
def a_job_is_executed_twice_under_one_fence(draft: Draft) -> None:
    draft.executed.append(draft.executed[0])


@breaks(Rule.NOT_IN_STORE)
def a_live_job_is_missing_in_the_store(draft: Draft) -> None:
    del draft.live["default", "mail", "waiting"]


@breaks(Rule.NOT_IN_LOG)
def the_store_has_a_job_that_the_log_does_not_know(draft: Draft) -> None:
    draft.live["default", "mail", "stowaway"] = State.PENDING


@breaks(Rule.NOT_IN_LOG)
def a_removed_job_is_still_in_the_store(draft: Draft) -> None:
    draft.live["default", "mail", "pruned"] = State.COMPLETED


@breaks(Rule.STORE_STATE)
def the_store_has_a_job_in_another_state(draft: Draft) -> None:
    draft.live["default", "mail", "running"] = State.PENDING


def _prune(beside: Event, job: str) -> Event:
    return Event(
        v=1,
        tenant=beside.tenant,
        queue=beside.queue,
        seq=beside.seq,
        at=beside.at,
        move=Move.PRUNE,
        jobs=[job],
    )


def _fenced(record: Executed, fence: int) -> Executed:
    return msgspec.structs.replace(record, fence=fence)


def _delivered(record: Executed, delivery: int) -> Executed:
    return msgspec.structs.replace(record, delivery=delivery)
