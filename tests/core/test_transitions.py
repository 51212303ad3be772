"""The table of moves is whole: a row for every move, a way to every state, a sentence for every row."""

import pytest

from penstock.core.events import COUNTED_MOVES, LEASE_MOVES
from penstock.core.job import Job, Options
from penstock.core.moves import Move, Settlement
from penstock.core.outcomes import Refusal
from penstock.core.states import ENDED, LIVE, PRUNABLE, REDRIVABLE, WAITING, State
from penstock.core.transitions import TABLE, Guard, refusal

NOW = 10_000


def a_job(state: State = State.ACTIVE, **fields: int) -> Job:
    return Job(
        tenant="default",
        queue="mail",
        id="a",
        nonce="n",
        task="send",
        state=state,
        payload=b"",
        priority=5,
        options=Options(retention_ms=1_000),
        enqueued_at=0,
        token="current",
        deadline=fields.get("deadline", NOW + 1),
        lease_ms=fields.get("lease_ms"),
        visible_at=fields.get("visible_at"),
        ended_at=fields.get("ended_at"),
    )


def test_every_move_has_one_row() -> None:
    assert set(TABLE) == set(Move)
    assert all(row.move is move for move, row in TABLE.items())


def test_every_row_has_a_sentence_of_its_own() -> None:
    sentences = [row.sentence for row in TABLE.values()]

    assert len(set(sentences)) == len(sentences)
    assert all("\n" not in sentence for sentence in sentences)


def test_a_sentence_says_the_row() -> None:
    assert TABLE[Move.RETRY].sentence == (
        "retry: active → delayed; the token must be current; attempts + 1; cancelled if that was asked for"
    )
    assert TABLE[Move.ENQUEUE].sentence.startswith("enqueue: nothing → pending / delayed / blocked; ")
    assert TABLE[Move.PRUNE].sentence.startswith("prune: completed / failed / cancelled → gone; ")


def test_every_state_can_be_reached_and_left() -> None:
    reached = {target for row in TABLE.values() for target in row.targets}
    left = {source for row in TABLE.values() for source in row.sources}

    assert reached == set(State)
    assert left == set(State)


def test_states_are_live_or_ended() -> None:
    assert {state for state in State if state.is_live} == LIVE
    assert {state for state in State if state.is_ended} == ENDED
    assert set(State) == LIVE | ENDED
    assert WAITING | {State.ACTIVE} == LIVE


def test_only_a_claim_starts_a_job() -> None:
    from_elsewhere = [
        row.move for row in TABLE.values() if State.ACTIVE in row.targets and State.ACTIVE not in row.sources
    ]

    assert from_elsewhere == [Move.CLAIM]


def test_a_completed_job_can_only_be_removed() -> None:
    moves = {row.move for row in TABLE.values() if State.COMPLETED in row.sources}

    assert moves == {Move.DELETE, Move.PRUNE}


def test_only_a_redrive_brings_an_ended_job_back() -> None:
    back = [row.move for row in TABLE.values() if row.sources & ENDED and set(row.targets) & LIVE]

    assert back == [Move.REDRIVE]
    assert TABLE[Move.REDRIVE].sources == REDRIVABLE


def test_a_dead_job_is_not_pruned() -> None:
    assert TABLE[Move.PRUNE].sources == PRUNABLE
    assert State.DEAD not in PRUNABLE


def test_a_running_job_cannot_be_removed() -> None:
    for move in (Move.DELETE, Move.PRUNE):
        assert State.ACTIVE not in TABLE[move].sources


@pytest.mark.parametrize("move", sorted((LEASE_MOVES - {Move.CLAIM}) | {Move.HEARTBEAT}))
def test_what_is_done_under_a_lease_needs_its_token(move: Move) -> None:
    row = TABLE[move]

    assert row.sources == {State.ACTIVE}
    assert Guard.TOKEN in row.guards
    assert refusal(row, a_job(deadline=NOW), now=NOW, token="stale") is Refusal.LOST


@pytest.mark.parametrize("settlement", Settlement.__args__)
def test_a_settlement_needs_no_time_left_on_its_lease(settlement: type[Settlement]) -> None:
    row = TABLE[settlement.move]

    assert refusal(row, a_job(deadline=NOW - 1), now=NOW, token="current") is None


def test_moves_that_would_run_a_job_again_give_way_to_a_cancel() -> None:
    giving_way = {row.move for row in TABLE.values() if row.cancels}

    assert giving_way == COUNTED_MOVES | {Move.SNOOZE, Move.RELEASE}
    assert not giving_way & {Move.COMPLETE, Move.FAIL}


@pytest.mark.parametrize("move", sorted(set(Move) - {Move.ENQUEUE}))
def test_a_row_refuses_every_state_it_does_not_start_from(move: Move) -> None:
    for state in set(State) - TABLE[move].sources:
        assert refusal(TABLE[move], a_job(state), now=NOW, token="current") is not None


def test_a_heartbeat_is_refused_from_the_deadline_on_and_an_expiry_before_it() -> None:
    beat, expire = TABLE[Move.HEARTBEAT], TABLE[Move.EXPIRE]
    held, over = a_job(deadline=NOW + 1), a_job(deadline=NOW)

    assert refusal(beat, held, now=NOW, token="current") is None
    assert refusal(beat, over, now=NOW, token="current") is Refusal.LOST
    assert refusal(expire, held, now=NOW, token="current") is Refusal.LOST
    assert refusal(expire, over, now=NOW, token="current") is None


def test_a_promotion_waits_for_its_time() -> None:
    row = TABLE[Move.PROMOTE]

    assert refusal(row, a_job(State.DELAYED, visible_at=NOW + 1), now=NOW) is Refusal.STATE
    assert refusal(row, a_job(State.DELAYED, visible_at=NOW), now=NOW) is None


def test_pruning_waits_until_the_job_was_kept_long_enough() -> None:
    row = TABLE[Move.PRUNE]

    assert refusal(row, a_job(State.COMPLETED, ended_at=NOW - 999), now=NOW) is Refusal.STATE
    assert refusal(row, a_job(State.COMPLETED, ended_at=NOW - 1_000), now=NOW) is None


def test_a_paused_queue_gives_no_claims() -> None:
    row = TABLE[Move.CLAIM]

    assert refusal(row, a_job(State.PENDING), now=NOW, is_open=False) is Refusal.STATE
    assert refusal(row, a_job(State.PENDING), now=NOW) is None


def test_a_lease_that_lies_further_ahead_than_its_duration_has_ended() -> None:
    """By more than a minute: the clock was set back."""
    row, job = TABLE[Move.EXPIRE], a_job(lease_ms=5_000, deadline=NOW + 65_000)

    assert refusal(row, job, now=NOW, token=job.token) is Refusal.LOST
    assert refusal(row, job, now=NOW - 1, token=job.token) is None
    assert refusal(TABLE[Move.HEARTBEAT], job, now=NOW, token=job.token) is None
    assert refusal(TABLE[Move.HEARTBEAT], job, now=NOW - 1, token=job.token) is Refusal.LOST
