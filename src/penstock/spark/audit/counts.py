"""What a log says in numbers, summed up while the rules are looked at."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql.functions import expr

from penstock.core.moves import Move
from penstock.core.states import ENDED, LIVE, State

_CHANGES: Final = "follows AND NOT removes"
# A job that was met when it was removed was in the state that the event names.
_GONE: Final = "removes AND (is_there OR NOT is_bulk)"
_STATE_GONE: Final = "coalesce(state, if(is_bulk, NULL, source))"


def sums() -> list[Column]:
    """The columns to observe: counts of events and jobs, and of jobs by the state they are left in."""
    ended = ", ".join(f"'{state}'" for state in sorted(ENDED))
    plain = {
        "events": "place = 0",
        "unknown": "NOT is_read AND NOT is_again AND place = 0",
        "jobs": "is_birth OR is_met",
        "removed": f"{_GONE} AND coalesce({_STATE_GONE} IN ({ended}), false)",
        "deleted": f"{_GONE} AND NOT coalesce({_STATE_GONE} IN ({ended}), false)",
        "enqueued": _moved(Move.ENQUEUE),
        "claimed": _moved(Move.CLAIM),
        "retried": _moved(Move.RETRY),
        "recovered": _moved(Move.EXPIRE),
        "redriven": _moved(Move.REDRIVE),
    }
    columns = [expr(f"count_if({condition})").alias(name) for name, condition in plain.items()]
    # Each event takes its job out of one state and into another: what is left over is where jobs are.
    for state in State:
        into = f"({_CHANGES} OR is_birth) AND target = '{state}'"
        out = f"(is_known OR is_blank) AND state = '{state}'"
        if state in ENDED:
            into = f"{_CHANGES} AND target = '{state}'"
            out = f"({_CHANGES} OR is_blank) AND state = '{state}'"
        columns.append(expr(f"count_if({into}) - count_if({out})").alias(state))
    return columns


def _moved(move: Move) -> str:
    return f"is_read AND NOT is_again AND place = 0 AND move = '{move}'"


LIVE_NAMES: Final = tuple(state for state in State if state in LIVE)
