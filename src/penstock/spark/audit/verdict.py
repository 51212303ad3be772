"""What the audit found: counts, and every breach as a row."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from penstock.core.history.rules import Breach, Rule
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.spark.audit.covered import BY_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The figures mean what those of `penstock.core.history.Verdict` mean.

    `breaches` has a row per breach: rule, tenant, queue, job, seq, says.
    """

    events: int
    unknown: int
    jobs: int
    enqueued: int
    completed: int
    failed: int
    dead: int
    cancelled: int
    deleted: int
    removed: int
    live: dict[State, int]
    claimed: int
    retried: int
    recovered: int
    redriven: int
    is_compared: bool
    """True when the log was held against the jobs of the store."""
    by_rule: dict[Rule, int]
    """How many breaches of each rule that was broken."""
    breaches: DataFrame

    @property
    def is_clean(self) -> bool:
        """True when every promise that was looked at was kept."""
        return not self.by_rule

    @property
    def lost(self) -> int:
        """Jobs that are live by the log, and are not in the store."""
        return self.by_rule.get(Rule.NOT_IN_STORE, 0)

    def first(self, limit: int) -> list[Breach]:
        """Some breaches, by queue and number."""
        rows = self.breaches.orderBy("tenant", "queue", "seq", "job", "rule").limit(limit).collect()
        return [
            Breach(
                BY_NAME[row.rule],
                None if row.queue is None else QueueRef(row.tenant, row.queue),
                row.job,
                row.seq,
                row.says,
            )
            for row in rows
        ]
