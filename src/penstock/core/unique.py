"""Jobs that are one of a kind: while they wait, while they live, within a window, or the newest only."""

from enum import StrEnum

import msgspec

from penstock.core.clocks import STEP_MS
from penstock.core.states import State


class UniqueRule(StrEnum):
    """How long a job keeps others of its kind away."""

    WAITING = "waiting"
    """While it has not started."""
    LIVE = "live"
    """Until it ended."""
    THROTTLE = "throttle"
    """For the window from its enqueue, whatever became of it."""
    DEBOUNCE = "debounce"
    """While it has not started; the newest payload replaces the older, and the wait begins again."""


class Unique(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of a kind: `key` says of which."""

    key: str
    rule: UniqueRule
    window_ms: int = 0

    def holds(self, state: State, since_ms: int) -> bool:
        """True when a job in this state, enqueued `since_ms` ago, keeps a new one away."""
        match self.rule:
            case UniqueRule.LIVE:
                return state.is_live
            case UniqueRule.THROTTLE:
                return self.is_throttled(since_ms)
            case UniqueRule.WAITING | UniqueRule.DEBOUNCE:
                return state in {State.PENDING, State.DELAYED, State.BLOCKED}

    def is_throttled(self, since_ms: int) -> bool:
        """True within the window; a job that came in a minute from now came before the clock was set back."""
        return self.rule is UniqueRule.THROTTLE and -STEP_MS <= since_ms < self.window_ms
