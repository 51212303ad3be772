"""What an audit is to find besides the breaches of single jobs."""

from collections.abc import Mapping

import msgspec


class Wanted(msgspec.Struct, frozen=True):
    """`starts` has the first number of logs that were trimmed, by tenant and queue.

    `edges` has how far logs were read by the audit before, and when their newest event was.
    """

    starts: Mapping[tuple[str, str], int]
    edges: Mapping[tuple[str, str], tuple[int, int | None]] = {}
    is_compared: bool = False
    """The states that jobs are left in are to be compared with a store."""
    is_limited: bool = False
    """Claims and ends of leases are wanted, for limits."""
    is_kept: bool = False
    """What is known of each job is wanted, for the next audit."""

    def is_cut(self, tenant: str | None, queue: str | None) -> bool:
        """True where jobs may begin with any event."""
        return self.starts.get((tenant or "", queue or ""), 1) > 1
