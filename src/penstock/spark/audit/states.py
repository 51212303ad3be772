"""Rules on the life of a job: its first event, its versions, and the table of transitions."""

from typing import Final

from penstock.core.events import LEASE_MOVES
from penstock.core.history.life import AFTER_ENDING
from penstock.core.history.rules import Rule
from penstock.core.transitions import TABLE
from penstock.spark.audit.sqltext import CANCELLING, ENDINGS, Check, listed

_DIFFERS: Final = "follows AND state IS NOT NULL AND NOT state <=> source"
"""The event starts from another state than the job was in; what that means depends on the move."""
_TWICE: Final = "move = 'unblock' AND coalesce(was_unblocked, false)"
_PAST_END: Final = f"state IN ({ENDINGS}) AND move NOT IN ({listed(AFTER_ENDING)})"
_CLAIMED: Final = "state = 'active' AND move = 'claim'"
_NO_LEASE: Final = f"source <=> 'active' AND move IN ({listed(LEASE_MOVES)})"
_IS_CANCEL: Final = f"target <=> 'cancelled' AND move IN ({CANCELLING})"
_LED: Final = "concat(move, ' led from ', coalesce(source, 'nothing'), ' to ', coalesce(target, 'gone'))"


def _not_removable() -> str:
    """SQL: the move takes no job out of the state it was in."""
    allowed = " OR ".join(
        f"move = '{row.move}' AND state IN ({listed(row.sources)})"
        for row in TABLE.values()
        if not row.targets
    )
    return f"NOT ({allowed})"


CHECKS: Final = (
    Check(
        Rule.UNKNOWN,
        "NOT is_read AND NOT is_again AND place = 0",
        "concat('an event that cannot be read, with the move ', coalesce(move, 'none'))",
    ),
    Check(
        Rule.NO_ENQUEUE,
        "is_met OR is_known AND is_bulk AND NOT is_there",
        "concat(move, ' of a job that ', if(is_bulk, 'is not there', 'was never enqueued'))",
    ),
    Check(
        Rule.ID_TAKEN,
        "is_birth AND is_there",
        "concat('enqueued again while it was ', coalesce(state, 'in an unknown state'))",
    ),
    Check(
        Rule.VERSION,
        "is_birth AND NOT version <=> 1",
        "concat('begins with version ', coalesce(version, 'none'))",
    ),
    Check(
        Rule.VERSION,
        "follows AND is_there AND NOT version <=> next_version",
        "concat('version ', coalesce(version, 'none'), ' came where ', next_version, ' was next')",
    ),
    Check(
        Rule.DRIVE,
        "is_birth AND NOT drive <=> 1",
        "concat('begins with drive ', coalesce(drive, 'none'))",
    ),
    Check(
        Rule.DRIVE,
        "follows AND is_there AND NOT drive <=> next_drive",
        "concat(move, ' in drive ', coalesce(drive, 'none'), ', not ', next_drive)",
    ),
    Check(
        Rule.TABLE, "is_read AND NOT is_again AND job IS NULL AND NOT is_bulk", "concat(move, ' of no job')"
    ),
    Check(Rule.TABLE, "is_birth AND NOT is_legal", _LED),
    Check(
        Rule.TABLE,
        f"follows AND NOT is_legal AND NOT ({_IS_CANCEL} AND NOT is_cancelling <=> false)",
        _LED,
    ),
    Check(
        Rule.TABLE,
        f"is_known AND is_bulk AND state IS NOT NULL AND {_not_removable()}",
        "concat(move, ' of a job that is ', state)",
    ),
    Check(
        Rule.CANCEL_IGNORED,
        f"follows AND coalesce(is_cancelling, false) AND move IN ({CANCELLING}) AND is_legal",
        "concat(move, ' led to ', target, ' although a cancel was asked for')",
    ),
    Check(Rule.UNBLOCKED_TWICE, f"{_DIFFERS} AND {_TWICE}", "concat('unblocked again, when it was ', state)"),
    Check(
        Rule.ENDED_TWICE,
        f"{_DIFFERS} AND NOT ({_TWICE}) AND {_PAST_END} AND coalesce(target IN ({ENDINGS}), false)",
        "concat(move, ' of a job that is ', state)",
    ),
    Check(
        Rule.AFTER_END,
        f"{_DIFFERS} AND NOT ({_TWICE}) AND {_PAST_END} AND NOT coalesce(target IN ({ENDINGS}), false)",
        "concat(move, ' of a job that is ', state)",
    ),
    Check(
        Rule.OVERLAP,
        f"{_DIFFERS} AND {_CLAIMED}",
        "concat('claimed by ', coalesce(worker, 'nobody'), ' while ', coalesce(lease.worker, 'nobody'),"
        " ' held its lease')",
    ),
    Check(
        Rule.STALE,
        f"{_DIFFERS} AND NOT ({_PAST_END}) AND NOT ({_CLAIMED}) AND {_NO_LEASE}",
        "concat(move, ' of a job that is ', state, ', under no lease')",
    ),
    Check(
        Rule.FROM,
        f"{_DIFFERS} AND NOT ({_TWICE}) AND NOT ({_PAST_END}) AND NOT ({_CLAIMED}) AND NOT ({_NO_LEASE})",
        "concat(move, ' from ', coalesce(source, 'nothing'), ' of a job that is ', state)",
    ),
    Check(
        Rule.EARLY_PROMOTE,
        "follows AND move = 'promote' AND at < due",
        "concat('promoted ', unix_millis(due) - unix_millis(at), ' ms before its time')",
    ),
)
