"""The checker is silent on honest histories and names every fault in spoiled ones."""

import time
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from penstock.core.events import Event, event_of
from penstock.core.history import Breach, Checker, Produced, Rule, check
from penstock.core.job import Job, Options, QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from tests.core.histories import MAIL, History, moves_in, random_history, told_history
from tests.core.keyed_history import told_keys
from tests.core.keyed_mutations import KEYED_MUTATIONS
from tests.core.mutations import MUTATIONS, Draft

SILENT = frozenset({Move.HEARTBEAT})
"""Moves that leave no event."""
UNTOLD = frozenset({Move.UNBLOCK, Move.REPLACE})
"""Moves of the other told history."""

NEED_LIMITS = frozenset(
    {
        Rule.KEY_LIMIT,
        Rule.MAX_ACTIVE,
        Rule.RATE,
        Rule.KEY_RATE,
        Rule.KEY_FIFO,
        Rule.TURN,
        Rule.KEYLESS,
    }
)
"""Rules that only the queue's declaration gives."""


@pytest.fixture(scope="module")
def told() -> History:
    return told_history()


@pytest.fixture(scope="module")
def keyed() -> History:
    return told_keys()


@pytest.mark.parametrize("block", range(20))
def test_honest_histories_are_clean(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        verdict = random_history(seed).check()

        assert verdict.breaches == (), f"seed {seed}"
        ends = verdict.completed + verdict.failed + verdict.dead + verdict.cancelled
        assert ends + verdict.deleted + sum(verdict.live.values()) == verdict.jobs, f"seed {seed}"
        assert verdict.lost == 0, f"seed {seed}"


def test_honest_histories_go_through_every_path_of_the_memory_store() -> None:
    paths: Counter[tuple[Move, State | None, State | None]] = Counter()
    for seed in range(60):
        paths.update((event.move, event.source, event.target) for event in random_history(seed).events)

    assert {move for move, _, _ in paths} == set(Move) - SILENT
    for move in (Move.RETRY, Move.BURY, Move.SNOOZE, Move.RELEASE, Move.EXPIRE):
        assert paths[move, State.ACTIVE, State.CANCELLED], f"no {move} met a cancel"
    for target in (State.DELAYED, State.DEAD, State.PENDING):
        assert paths[Move.EXPIRE, State.ACTIVE, target], f"no lease expired to {target}"


def test_the_told_history_is_clean_and_adds_up(told: History) -> None:
    verdict = told.check()

    assert verdict.is_clean, [str(breach) for breach in verdict.breaches]
    assert moves_in(told.events) == set(Move) - SILENT - UNTOLD
    assert verdict.events == len(told.events)
    assert (verdict.jobs, verdict.completed, verdict.failed, verdict.dead) == (16, 9, 1, 0)
    assert (verdict.cancelled, verdict.deleted, verdict.removed) == (2, 1, 3)
    assert verdict.live == {State.BLOCKED: 0, State.PENDING: 1, State.DELAYED: 1, State.ACTIVE: 1}
    assert (verdict.claimed, verdict.retried, verdict.recovered, verdict.redriven) == (17, 2, 1, 1)


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_checker_finds_that(name: str, told: History) -> None:
    mutation, rules = MUTATIONS[name]
    draft = Draft(told)
    mutation(draft)

    assert set(draft.check().by_rule) == rules


def test_the_told_history_of_keys_is_clean_and_has_what_the_other_lacks(keyed: History) -> None:
    verdict = keyed.check()

    assert verdict.is_clean, [str(breach) for breach in verdict.breaches]
    assert moves_in(keyed.events) >= UNTOLD


@pytest.mark.parametrize("name", KEYED_MUTATIONS)
def test_the_checker_finds_where_keys_take_turns_that(name: str, keyed: History) -> None:
    mutation, rules = KEYED_MUTATIONS[name]
    draft = Draft(keyed)
    mutation(draft)

    assert set(draft.check().by_rule) == rules


def test_limits_and_turns_are_not_judged_where_no_declaration_is_given(keyed: History) -> None:
    for mutation, rules in KEYED_MUTATIONS.values():
        draft = Draft(keyed)
        mutation(draft)
        draft.limits = {}

        assert set(draft.check().by_rule) == rules - NEED_LIMITS


def test_every_rule_is_broken_by_some_mutation() -> None:
    mutations = [*MUTATIONS.values(), *KEYED_MUTATIONS.values()]
    broken = frozenset[Rule]().union(*(rules for _, rules in mutations))

    assert broken == set(Rule)


def test_every_rule_says_its_promise_in_a_sentence_of_its_own() -> None:
    promises = [rule.promise for rule in Rule]

    assert len(set(promises)) == len(promises)
    assert all(promise[0].isupper() and promise.endswith(".") for promise in promises)


@pytest.mark.parametrize("seed", range(40))
def test_dropping_any_one_event_of_an_honest_history_is_seen(seed: int) -> None:
    events = [event for event in random_history(seed, steps=40).events if event.queue == "mail"]
    last = {(event.tenant, event.queue): event.seq for event in events}
    for left_out in events:
        if left_out.seq != last[left_out.tenant, left_out.queue]:
            assert check(event for event in events if event is not left_out).by_rule[Rule.SEQ_GAP] == 1


def test_queues_may_come_in_any_order() -> None:
    history = random_history(3)
    by_time = sorted(history.events, key=lambda event: (event.at, event.seq))

    assert by_time != history.events
    assert check(by_time, produced=history.produced, executed=history.executed, live=history.live).is_clean


def test_the_verdict_can_be_asked_for_while_events_go_on(told: History) -> None:
    checker = Checker(produced=told.produced)
    checker.feed(told.events[0])
    early = checker.finish()
    for event in told.events[1:]:
        checker.feed(event)

    assert early.lost == len({record.job for record in told.produced}) - 1
    assert checker.finish(told.live).is_clean


def test_a_trimmed_log_is_checked_from_where_it_starts() -> None:
    for seed in range(40):
        events = [event for event in random_history(seed).events if event.tenant == "other"]
        for cut in range(1, len(events), 7):
            kept = events[cut:]

            assert check(kept, starts={QueueRef("other", "mail"): kept[0].seq}).breaches == (), (
                f"seed {seed}, {cut}"
            )


def test_a_trimmed_log_is_a_gap_where_no_start_is_given(told: History) -> None:
    assert Rule.SEQ_GAP in check(told.events[5:]).by_rule


def test_where_many_wrote_at_once_only_the_events_of_one_job_have_an_order() -> None:
    """Numbers may be left out and come late; an event that comes twice is one too many all the same."""
    lives = [list(plain_lives(1, kept=1)) for _ in range(2)]
    first = [msgspec.structs.replace(each, seq=2 * each.seq + 10) for each in lives[0]]
    second = [
        msgspec.structs.replace(each, job="other", seq=2 * each.seq + 9, at=each.at - 5) for each in lives[1]
    ]
    mixed = [*first, *second]
    checker, again = Checker(in_order=False), Checker(in_order=False)
    for event in mixed:
        checker.feed(event)
        again.feed(event)
    again.feed(mixed[0])

    assert {Rule.SEQ_GAP, Rule.SEQ_ORDER, Rule.TIME_BACK} <= set(check(mixed).by_rule)
    assert checker.finish().breaches == ()
    assert set(again.finish().by_rule) == {Rule.SEQ_TWICE}


def test_the_log_as_it_is_stored_gives_the_same_verdict(told: History) -> None:
    checker = Checker(produced=told.produced, executed=told.executed)
    for event in told.events:
        checker.feed_json(event.to_json())

    assert checker.finish(told.live) == told.check()


def test_an_event_of_a_later_version_is_counted_and_the_job_is_met_again_after_it(told: History) -> None:
    checker = Checker()
    for event in told.events:
        data = msgspec.json.decode(event.to_json())
        if event.job == "tried" and event.move is Move.EXPIRE:
            data |= {"v": 2, "move": "hibernate", "to": "asleep", "dreams": ["sheep"]}
        checker.feed_json(msgspec.json.encode(data))
    verdict = checker.finish(told.live)

    assert verdict.unknown == 1
    assert set(verdict.by_rule) == {Rule.UNKNOWN}
    assert verdict.events == len(told.events)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"v":1}', b"\xff"])
def test_what_is_no_event_at_all_is_a_breach(data: bytes) -> None:
    checker = Checker()
    checker.feed_json(data)
    verdict = checker.finish()

    assert verdict.by_rule == {Rule.UNKNOWN: 1}
    assert (verdict.events, verdict.unknown) == (1, 1)


def test_nothing_at_all_is_clean_and_nothing_of_something_is_not() -> None:
    assert check([]).is_clean
    assert check([], live={("default", "mail", "a"): State.PENDING}).by_rule[Rule.NOTHING_READ] == 1
    assert check([], produced=[Produced(MAIL, "a")]).lost == 1


def test_a_job_that_was_passed_over_is_named_once(told: History) -> None:
    draft = Draft(told)
    del draft.events[draft.at("first", Move.CLAIM)]
    del draft.events[draft.at("first", Move.COMPLETE)]
    draft.tidy()
    draft.live["default", "mail", "first"] = State.PENDING
    verdict = check(draft.events, live=draft.live)

    assert [(breach.rule, breach.job) for breach in verdict.breaches] == [(Rule.FIFO, "second")]


def test_a_breach_says_where_it_is(told: History) -> None:
    draft = Draft(told)
    draft.shift(draft.at("running", Move.CLAIM), attempt=1)
    (breach,) = draft.check().breaches

    seq = draft.events[draft.at("running", Move.CLAIM)].seq
    assert str(breach) == f"attempt: queue mail, job running, event {seq}, attempt 2 came after 0 failures"
    assert str(Breach(Rule.NOTHING_READ, None, None, None, "no event was read")).endswith(
        ": no event was read"
    )


def test_nothing_is_kept_of_jobs_that_are_gone() -> None:
    checker = Checker()
    for event in plain_lives(2_000, kept=5):
        checker.feed(event)
    verdict = checker.finish()

    assert verdict.is_clean
    assert (verdict.jobs, verdict.completed, verdict.removed) == (2_000, 2_000, 1_995)
    assert checker.kept == 5


def test_the_checker_says_how_fast_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    events = list(plain_lives(10_000, kept=1_000))
    checker = Checker()
    began = time.perf_counter()
    for event in events:
        checker.feed(event)
    took = time.perf_counter() - began
    with capsys.disabled():
        print(f" {len(events) / took:,.0f} events/s ", end="")

    assert checker.finish().is_clean


def plain_lives(jobs: int, kept: int) -> Iterator[Event]:
    """Jobs that are enqueued, claimed, completed and, but for the newest, deleted."""
    seq = 0
    for number in range(jobs):
        at = 1_000 + number
        yield from _one_life(f"job-{number}", seq, at)
        seq += 3
        if number >= kept:
            seq += 1
            gone = [f"job-{number - kept}"]
            yield Event(v=1, tenant="t", queue="q", seq=seq, move=Move.DELETE, at=at, jobs=gone)


def _one_life(name: str, seq: int, at: int) -> Iterator[Event]:
    job = Job(
        tenant="t",
        queue="q",
        id=name,
        nonce=name,
        task="send",
        state=State.PENDING,
        payload=b"",
        priority=5,
        options=Options(),
        enqueued_at=at,
    )
    yield event_of(job, Move.ENQUEUE, None, seq=seq + 1, at=at)
    lease = {"fence": at * 1000, "delivery": 1, "worker": "w", "deadline": at + 9}
    job = msgspec.structs.replace(job, state=State.ACTIVE, version=2, **lease)
    yield event_of(job, Move.CLAIM, State.PENDING, seq=seq + 2, at=at)
    job = msgspec.structs.replace(job, state=State.COMPLETED, version=3)
    yield event_of(job, Move.COMPLETE, State.ACTIVE, seq=seq + 3, at=at)
