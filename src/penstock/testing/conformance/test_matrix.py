"""Every move, from every state, in every circumstance, on every store."""

from itertools import permutations
from typing import get_args

import pytest

from penstock.core.moves import Move, Settlement
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.core.transitions import TABLE
from penstock.stores.protocol import Moves, Store
from penstock.testing.conformance.arrange import arrange, claim_one
from penstock.testing.conformance.cases import Setting, cases, cases_of, telling_cases_of
from penstock.testing.conformance.judge import run_cases, settlement
from penstock.testing.conformance.parts import MOVES_OF_PARTS, Part, moves_with, needs

SETTLING = [each.move for each in get_args(Settlement)]


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(move, marks=needs(MOVES_OF_PARTS[move]) if move in MOVES_OF_PARTS else ())
        for move in Move
    ],
)
async def test_a_move_does_what_the_table_says(
    store: Store, parts: frozenset[Part], is_brief: bool, move: Move
) -> None:
    """Over all states, tokens, cancels asked for, times and pauses."""
    # A second version of a server need not be paused for moves that do not look.
    some = telling_cases_of if is_brief else cases_of
    wrong = await run_cases(store, list(some(move, moves_with(parts))))

    assert not wrong, f"{len(wrong)} cases differ from the table:\n" + "\n".join(wrong[:20])


def test_every_row_is_made_by_a_method_of_the_protocol() -> None:
    """Two of them not by one of their own name: unblock by the ending of a child, replace by an enqueue."""
    methods = {name for name in vars(Moves) if not name.startswith("_")} - {"settle"}
    made = {Move(name) for name in methods} | set(SETTLING)

    assert set(TABLE) - made == set(MOVES_OF_PARTS)


def test_every_state_is_in_the_matrix() -> None:
    """And every move."""
    assert {case.setting.state for case in cases()} == {None, *State}
    assert {case.move for case in cases()} == set(Move)


@pytest.mark.parametrize("cancel", [False, True], ids=["no cancel", "cancel asked"])
@pytest.mark.parametrize("move", SETTLING, ids=str)
async def test_a_settlement_made_twice_gets_the_same_answer(store: Store, move: Move, cancel: bool) -> None:
    """The reply may have been lost; the worker asks again."""
    scene = await arrange(store, Setting(State.ACTIVE, cancel=cancel))
    said = settlement(move, scene.subject.id, scene.right)
    first = await store.moves.settle(scene.queue, [said])
    records = await store.reads.get(scene.queue, [scene.subject.id])
    again = await store.moves.settle(scene.queue, [said, said])

    assert isinstance(first[0], Applied)
    assert again == first * 2
    assert await store.reads.get(scene.queue, [scene.subject.id]) == records


@pytest.mark.parametrize("move", [Move.RETRY, Move.SNOOZE, Move.RELEASE], ids=str)
async def test_a_settlement_is_remembered_while_the_next_delivery_runs(store: Store, move: Move) -> None:
    """Also after the job was claimed again, and without touching the new lease."""
    scene = await arrange(store, Setting(State.ACTIVE))
    said = settlement(move, scene.subject.id, scene.right)
    first = await store.moves.settle(scene.queue, [said])
    await store.clock.advance_clock(100_000)
    claimed = await claim_one(store, scene.queue)
    again = await store.moves.settle(scene.queue, [said])
    [record] = await store.reads.get(scene.queue, [scene.subject.id])

    assert claimed.id == scene.subject.id
    assert again == first
    assert record is not None
    assert (record.state, record.token) == (State.ACTIVE, claimed.token)


@pytest.mark.parametrize(("first", "second"), list(permutations(SETTLING, 2)), ids=str)
async def test_a_used_token_settles_nothing_else(store: Store, first: Move, second: Move) -> None:
    """The same token with another move is lost."""
    scene = await arrange(store, Setting(State.ACTIVE))
    [settled] = await store.moves.settle(scene.queue, [settlement(first, scene.subject.id, scene.right)])
    records = await store.reads.get(scene.queue, [scene.subject.id])
    refused = await store.moves.settle(scene.queue, [settlement(second, scene.subject.id, scene.right)])

    assert isinstance(settled, Applied)
    assert refused == [Refused(Refusal.LOST, settled.state)]
    assert await store.reads.get(scene.queue, [scene.subject.id]) == records
