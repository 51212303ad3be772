"""What an event says, and that it is the same after a journey through a log."""

from typing import Any

import msgspec
import pytest

from penstock.core.events import (
    COUNTED_MOVES,
    ERROR_CHARS,
    LEASE_MOVES,
    Event,
    event_of,
    fingerprint,
    first_line,
)
from penstock.core.job import Job, Options
from penstock.core.moves import Move
from penstock.core.states import State
from tests.core.histories import told_history


def a_job(state: State = State.ACTIVE) -> Job:
    return Job(
        tenant="default",
        queue="mail",
        id="a",
        nonce="n",
        task="send",
        state=state,
        payload=b'{"secret":1}',
        priority=7,
        options=Options(max_attempts=3),
        enqueued_at=1_000,
        version=4,
        drive=2,
        delivery=5,
        attempts=1,
        visible_at=9_000 if state is State.DELAYED else None,
        idempotency_key="once",
        token="unguessable",
        fence=77,
        deadline=8_000,
        worker="w1",
        reason="ERROR",
        error="ValueError: no\n  in detail",
        fingerprint="f",
    )


def test_every_event_comes_back_from_the_log_as_it_was() -> None:
    for event in told_history().events:
        assert Event.from_json(event.to_json()) == msgspec.structs.replace(event, cursor="")


def test_the_log_has_the_names_of_the_event_record_and_no_unused_fields() -> None:
    event = event_of(a_job(), Move.PROGRESS, State.ACTIVE, seq=9, at=2_000)

    assert msgspec.json.decode(event.to_json()) == {
        "v": 1,
        "tenant": "default",
        "queue": "mail",
        "seq": 9,
        "move": "progress",
        "at": 2_000,
        "job": "a",
        "version": 4,
        "drive": 2,
        "from": "active",
        "to": "active",
        "task": "send",
        "priority": 7,
        "delivery": 5,
        "attempt": 2,
        "fence": 77,
        "worker": "w1",
    }


def test_fields_of_later_versions_are_ignored() -> None:
    event = event_of(a_job(), Move.COMPLETE, State.ACTIVE, seq=9, at=2_000)
    later = msgspec.json.encode(msgspec.json.decode(event.to_json()) | {"mood": {"is": "good"}})

    assert Event.from_json(later) == event


def test_a_move_of_a_later_version_cannot_be_read_as_an_event() -> None:
    event = event_of(a_job(), Move.COMPLETE, State.ACTIVE, seq=9, at=2_000)

    with pytest.raises(msgspec.ValidationError):
        Event.from_json(event.to_json().replace(b'"complete"', b'"teleport"'))


@pytest.mark.parametrize("move", sorted(LEASE_MOVES))
def test_an_event_under_a_lease_names_the_lease(move: Move) -> None:
    event = event_of(a_job(), move, State.ACTIVE, seq=9, at=2_000)

    assert (event.delivery, event.fence, event.worker) == (5, 77, "w1")


@pytest.mark.parametrize("move", sorted(set(Move) - LEASE_MOVES))
def test_an_event_under_no_lease_names_none(move: Move) -> None:
    event = event_of(a_job(State.PENDING), move, State.DELAYED, seq=9, at=2_000)

    assert (event.delivery, event.attempt, event.fence, event.worker) == (None, None, None, None)


@pytest.mark.parametrize("move", sorted(LEASE_MOVES))
def test_all_events_of_an_execution_have_the_same_attempt_number(move: Move) -> None:
    failed_before = 1
    counted = failed_before + 1 if move in COUNTED_MOVES else failed_before
    job = msgspec.structs.replace(a_job(), attempts=counted)

    assert event_of(job, move, State.ACTIVE, seq=9, at=2_000).attempt == failed_before + 1


def test_only_an_enqueue_says_the_idempotency_key_and_the_bound_on_attempts() -> None:
    events = {move: event_of(a_job(), move, None, seq=9, at=2_000) for move in Move}

    assert [move for move in events if events[move].idempotency_key == "once"] == [Move.ENQUEUE]
    assert [move for move in events if events[move].max_attempts == 3] == [Move.ENQUEUE]


def test_only_a_claim_says_the_deadline() -> None:
    events = {move: event_of(a_job(), move, None, seq=9, at=2_000) for move in Move}

    assert [move for move in events if events[move].deadline is not None] == [Move.CLAIM]


def test_an_event_that_leads_to_delayed_says_until_when() -> None:
    assert event_of(a_job(State.DELAYED), Move.RETRY, State.ACTIVE, seq=9, at=2_000).visible_at == 9_000
    assert event_of(a_job(State.PENDING), Move.PROMOTE, State.DELAYED, seq=9, at=2_000).visible_at is None


def test_a_failure_says_its_reason_and_the_first_line_of_its_error() -> None:
    event = event_of(a_job(State.DELAYED), Move.RETRY, State.ACTIVE, seq=9, at=2_000)

    assert (event.reason, event.error, event.fingerprint) == ("ERROR", "ValueError: no", "f")


def test_a_removal_leads_nowhere() -> None:
    event = event_of(a_job(State.DEAD), Move.DELETE, State.DEAD, seq=9, at=2_000)

    assert (event.source, event.target) == (State.DEAD, None)


def test_no_event_carries_payload_or_token() -> None:
    for move in Move:
        data = event_of(a_job(), move, State.ACTIVE, seq=9, at=2_000).to_json()

        assert b"secret" not in data
        assert b"unguessable" not in data


def test_marks_of_events_differ_when_what_identifies_them_does() -> None:
    events = told_history().events
    changes: list[dict[str, Any]] = [
        {"tenant": "other"},
        {"queue": "other"},
        {"seq": 10**6},
        {"at": 1},
        {"move": Move.SNOOZE},
        {"job": "other"},
        {"version": 10**6},
        {"jobs": ["x", "y"]},
    ]

    for event in events:
        changed = [msgspec.structs.replace(event, **change) for change in changes]
        differing = [each for each in changed if each != event]
        assert event.mark not in {each.mark for each in differing}
    assert len({event.mark for event in events}) == len(events)


def test_an_error_is_cut_to_its_first_line_and_its_bound() -> None:
    assert first_line(None) is None
    assert first_line("one\ntwo") == "one"
    assert first_line("x" * 2 * ERROR_CHARS) == "x" * ERROR_CHARS


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError: 'alice'", "KeyError: 'bob'"),
        ('no file "a.txt"', 'no file "b/c.txt"'),
        ("timed out after 30 s", "timed out after 31 s"),
        ("at 0x7f00deadbeef", "at 0x7f0000000001"),
        ("order 0123456789abcdef gone", "order fedcba98-7654-3210-aaaa gone"),
        ("same line\nother detail", "same line\nmore detail"),
    ],
)
def test_errors_that_differ_only_in_values_have_one_fingerprint(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other) is not None


def test_different_errors_have_different_fingerprints() -> None:
    assert fingerprint("KeyError: 'a'") != fingerprint("ValueError: 'a'")
    assert fingerprint(None) is None
