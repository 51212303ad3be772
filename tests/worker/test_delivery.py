"""The phases of a delivery: one table, one place that changes the phase, one way to free a slot."""

import inspect
import re

import pytest

from penstock.core.job import Claimed, Options
from penstock.worker import delivery as deliveries
from penstock.worker import execute, settle
from penstock.worker.delivery import EXECUTING, OPEN, TABLE, Delivery, Phase, Step


def make() -> Delivery:
    job = Claimed(
        id="a",
        token="t",
        task="send",
        payload=b"{}",
        options=Options(),
        attempts=0,
        delivery=1,
        drive=1,
        fence=1,
        priority=5,
        key=None,
        enqueued_at=0,
        deadline=0,
        cancel_requested=False,
    )
    return Delivery(job, 0.0)


def reached(*steps: Step) -> Phase:
    """The phase after these steps, all of which apply."""
    delivery = make()
    for step in steps:
        assert delivery.advance(step)
    return delivery.phase


def test_every_phase_has_a_row_and_is_reached_and_every_step_is_used() -> None:
    targets = {after for row in TABLE.values() for after in row.values()}

    assert set(TABLE) == set(Phase)
    assert targets == set(Phase) - {Phase.CLAIMED}
    assert {step for row in TABLE.values() for step in row} == set(Step)


def test_every_phase_leads_to_the_end() -> None:
    leads = {Phase.OVER}
    while more := {phase for phase, row in TABLE.items() if leads & set(row.values())} - leads:
        leads |= more

    assert leads == set(Phase)


def test_a_settlement_is_decided_once() -> None:
    for phase, row in TABLE.items():
        if Step.DECIDE in row:
            assert phase in OPEN
            assert row[Step.DECIDE] not in OPEN
    assert not any(
        after in OPEN for phase, row in TABLE.items() if phase not in OPEN for after in row.values()
    )


def test_a_slot_is_free_only_when_no_handler_runs_and_nothing_is_left_to_send() -> None:
    assert Phase.OVER not in EXECUTING | OPEN
    for phase, row in TABLE.items():
        for step, after in row.items():
            if after is Phase.OVER:
                assert step in {Step.SEND, Step.END, Step.LOSE}
                assert phase not in EXECUTING or step is Step.END


@pytest.mark.parametrize(
    ("steps", "phase"),
    [
        ([Step.DECIDE, Step.SEND], Phase.OVER),
        ([Step.START, Step.BEGIN, Step.END, Step.DECIDE, Step.SEND], Phase.OVER),
        ([Step.START, Step.BEGIN, Step.LOSE], Phase.DETACHED),
        ([Step.START, Step.BEGIN, Step.DECIDE, Step.END], Phase.DECIDED),
        ([Step.START, Step.BEGIN, Step.DECIDE, Step.SEND], Phase.DETACHED),
        ([Step.START, Step.BEGIN, Step.OVERRUN, Step.STICK, Step.LOSE, Step.END], Phase.OVER),
    ],
)
def test_the_steps_of_a_life(steps: list[Step], phase: Phase) -> None:
    assert reached(*steps) is phase


def test_a_step_that_comes_too_late_changes_nothing() -> None:
    delivery = make()
    assert delivery.advance(Step.DECIDE)

    assert not delivery.advance(Step.LOSE)
    assert delivery.phase is Phase.DECIDED


def test_only_advance_writes_the_phase() -> None:
    for module in (deliveries, execute, settle):
        source = inspect.getsource(module)
        written = len(re.findall(r"\.phase = ", source))
        assert written == (2 if module is deliveries else 0)
