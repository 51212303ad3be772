"""Rules on leases and attempts: fences, deliveries, deadlines, and how often a job may fail."""

from typing import Final

from penstock.core.clocks import LONGEST_LEASE_MS, STEP_MS
from penstock.core.history.life import TRIES_AGAIN
from penstock.core.history.rules import Rule
from penstock.spark.audit.lives import COUNTED, UNDER_LEASE
from penstock.spark.audit.sqltext import Check, listed

_CLAIMS: Final = "follows AND move = 'claim'"
_UNDER_LEASE: Final = f"follows AND move IN ({UNDER_LEASE})"
_KNOWS: Final = "coalesce(knows_lease, false)"
_AHEAD_MS: Final = "unix_millis(coalesce(deadline, leased_until)) - unix_millis(at)"
_FAILS: Final = f"follows AND move IN ({COUNTED})"
# Where the lease was not known, this event tells of it, and of the attempt.
_ATTEMPT: Final = "if(tells_lease, coalesce(attempt, failures + 1), failures + 1)"


def _lease(of: str) -> str:
    return (
        f"concat('delivery ', coalesce({of}delivery, 'none'), ', fence ', coalesce({of}fence, 'none'),"
        f" ', worker ', coalesce({of}worker, 'none'))"
    )


CHECKS: Final = (
    Check(
        Rule.DELIVERY,
        f"{_CLAIMS} AND {_KNOWS} AND NOT delivery <=> lease.delivery + 1",
        "concat('delivery ', coalesce(delivery, 'none'), ' came after ', coalesce(lease.delivery, 'none'))",
    ),
    Check(
        Rule.FENCE,
        f"{_CLAIMS} AND {_KNOWS} AND coalesce(fence <= lease.fence, true)",
        "concat('fence ', coalesce(fence, 'none'), ' came after ', coalesce(lease.fence, 'none'))",
    ),
    Check(
        Rule.ATTEMPT,
        f"{_CLAIMS} AND {_KNOWS} AND NOT attempt <=> failures + 1",
        "concat('attempt ', coalesce(attempt, 'none'), ' came after ', failures, ' failures')",
    ),
    Check(
        Rule.ATTEMPT,
        f"{_UNDER_LEASE} AND NOT attempt <=> {_ATTEMPT}",
        "concat(move, ' as attempt ', coalesce(attempt, 'none'), ', after ', failures, ' failures')",
    ),
    Check(
        Rule.ATTEMPTS,
        f"{_CLAIMS} AND attempt > most_attempts",
        "concat('attempt ', attempt, ' of ', most_attempts, ' began')",
    ),
    Check(
        Rule.STALE,
        f"{_UNDER_LEASE} AND {_KNOWS} AND state = 'active' AND NOT (fence <=> lease.fence"
        " AND delivery <=> lease.delivery AND worker <=> lease.worker)",
        f"concat(move, ' under ', {_lease('')}, '; held: ', {_lease('lease.')})",
    ),
    Check(
        Rule.EARLY_EXPIRE,
        f"{_UNDER_LEASE} AND move = 'expire' AND ({_AHEAD_MS}) > 0"
        f" AND ({_AHEAD_MS}) <= coalesce(leased_for_ms, {LONGEST_LEASE_MS}) + {STEP_MS}",
        f"concat('expired ', {_AHEAD_MS}, ' ms before its deadline')",
    ),
    Check(
        Rule.EARLY_BURY,
        f"{_FAILS} AND target = 'dead' AND {_ATTEMPT} < most_attempts AND NOT is_unhandled",
        f"concat('dead after ', {_ATTEMPT}, ' of ', most_attempts, ' attempts')",
    ),
    Check(
        Rule.EXHAUSTED,
        f"{_FAILS} AND target IN ({listed(TRIES_AGAIN)}) AND {_ATTEMPT} >= most_attempts",
        f"concat(target, ' after ', {_ATTEMPT}, ' of ', most_attempts, ' attempts')",
    ),
)
