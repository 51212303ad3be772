"""What the checker keeps in scratch tables it knows as well as what it keeps in memory."""

import random
from collections import OrderedDict

import pytest

from penstock.core.history import Checker, Rule, SpillingMap, Verdict, check
from penstock.core.history import lines as history_lines
from penstock.core.history.life import Life
from penstock.core.history.lines import Line
from penstock.core.states import State
from tests.core.histories import History, random_history, told_history
from tests.core.keyed_history import told_keys
from tests.core.keyed_mutations import KEYED_MUTATIONS
from tests.core.mutations import MUTATIONS, Draft
from tests.core.scratch_tables import DictTable, spill_all
from tests.core.test_history import plain_lives


@pytest.fixture(autouse=True)
def _spills(monkeypatch: pytest.MonkeyPatch) -> None:
    spill_all(monkeypatch)


def spilled(draft: Draft | History) -> Verdict:
    """What a checker says that keeps next to nothing in memory."""
    return check(
        draft.events,
        produced=draft.produced,
        executed=draft.executed,
        live=sorted(draft.live.items()),
        limits=draft.limits,
        new_table=DictTable,
    )


@pytest.mark.parametrize("keyed", [False, True])
def test_every_fault_is_found_as_in_memory(keyed: bool) -> None:
    told = told_keys() if keyed else told_history()
    assert spilled(told) == told.check()
    for name, (mutation, rules) in (KEYED_MUTATIONS if keyed else MUTATIONS).items():
        draft = Draft(told)
        mutation(draft)

        assert set(spilled(draft).by_rule) == rules, name
        assert spilled(draft) == draft.check(), name


def test_honest_histories_are_clean() -> None:
    for seed in range(25):
        told = random_history(seed)
        assert spilled(told) == told.check(), f"seed {seed}"


def test_nothing_is_kept_of_jobs_that_are_gone() -> None:
    checker = Checker(new_table=DictTable)
    for event in plain_lives(500, kept=5):
        checker.feed(event)

    assert checker.finish().is_clean
    assert checker.kept == 5


def test_jobs_of_the_store_and_of_the_log_are_compared_in_the_order_of_their_names() -> None:
    checker = Checker(new_table=DictTable)
    events = list(plain_lives(10, kept=10))
    for event in events:
        if event.version == 1:
            checker.feed(event)
    (tenant, queue), ids = (events[0].tenant, events[0].queue), sorted({str(event.job) for event in events})
    stored = [(tenant, queue, job) for job in sorted([*ids[1:], "0", "~"])]
    found = checker.finish((name, State.PENDING) for name in stored)

    said = {breach.job: breach.rule for breach in found.breaches if breach.rule is not Rule.SEQ_GAP}
    assert said == {ids[0]: Rule.NOT_IN_STORE, "0": Rule.NOT_IN_LOG, "~": Rule.NOT_IN_LOG}


def test_a_map_is_the_same_wherever_its_entries_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.history.scratch.HOT", 8)
    chance = random.Random(7)
    plain: dict[str, int] = {}
    spilling = SpillingMap(int, DictTable)
    for step in range(5_000):
        key = str(chance.randrange(100))
        match chance.randrange(4):
            case 0:
                spilling[key] = plain[key] = step
            case 1:
                spilling.discard(key)
                plain.pop(key, None)
            case 2:
                assert spilling.get(key) == plain.get(key)
            case _:
                spilling.trim()
        if step % 500 == 0:
            assert list(spilling.ordered()) == sorted(plain.items())
            assert len(spilling) == len(plain)


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_line_has_the_order_of_arrival_wherever_its_entries_are(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_lines, "CHUNK", chunk)
    chance = random.Random(chunk)
    lives = SpillingMap(Life, DictTable)
    line, order = Line(5, lives, DictTable), OrderedDict[str, bool]()
    for step in range(5_000):
        kind = chance.randrange(5)
        if kind < 2 or not order:
            job, life = str(step), Life(State.PENDING, 1, 1)
            at_front = kind == 0
            line.join(job, life, at_front=at_front)
            lives[job] = life
            order[job] = True
            order.move_to_end(job, last=not at_front)
        else:
            job = next(iter(order)) if kind == 2 else chance.choice(list(order))
            assert line.first()[0] == next(iter(order))
            gone = lives.get(job)
            assert gone is not None
            line.leave(gone)
            del order[job]
        lives.trim()
        assert line.many == len(order)
