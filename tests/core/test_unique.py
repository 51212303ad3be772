"""How long a job keeps others of its kind away."""

import pytest

from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule

WAITING = {State.PENDING, State.DELAYED, State.BLOCKED}


@pytest.mark.parametrize("state", State, ids=str)
@pytest.mark.parametrize("since_ms", [0, 1_000_000])
def test_states_decide_for_all_rules_but_the_window(state: State, since_ms: int) -> None:
    assert Unique("k", UniqueRule.WAITING).holds(state, since_ms) is (state in WAITING)
    assert Unique("k", UniqueRule.DEBOUNCE).holds(state, since_ms) is (state in WAITING)
    assert Unique("k", UniqueRule.LIVE).holds(state, since_ms) is state.is_live


@pytest.mark.parametrize("state", State, ids=str)
def test_a_window_holds_in_every_state_until_it_is_over(state: State) -> None:
    throttle = Unique("k", UniqueRule.THROTTLE, 1_000)

    assert throttle.holds(state, 0)
    assert throttle.holds(state, 999)
    assert not throttle.holds(state, 1_000)
