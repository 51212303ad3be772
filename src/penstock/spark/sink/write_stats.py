"""What became of rows: counted by tasks, added up by the driver."""

from collections import Counter

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

from penstock.spark.sink.write_scope import WriteScope


class WriteStats(msgspec.Struct):
    """Rows by what became of them.

    `applied` had an effect: a job was enqueued, redriven, cancelled or deleted. `already` were so before,
    perhaps by an earlier run of the same task; so the two together are exact, and each alone may not be.
    `refused` were not allowed by their jobs' state, `bad` could not be understood; both by what it was.
    """

    rows: int = 0
    applied: int = 0
    already: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=Counter)
    bad: dict[str, int] = msgspec.field(default_factory=Counter)

    def add(self, other: "WriteStats") -> None:
        """Count in what another task counted."""
        self.rows += other.rows
        self.applied += other.applied
        self.already += other.already
        for mine, theirs in ((self.refused, other.refused), (self.bad, other.bad)):
            for what, count in theirs.items():
                mine[what] = mine.get(what, 0) + count

    def __str__(self) -> str:
        parts = [f"{self.rows} rows", f"{self.applied} applied", f"{self.already} already so"]
        for word, counts in (("refused", self.refused), ("bad", self.bad)):
            if counts:
                said = ", ".join(f"{what}: {count}" for what, count in sorted(counts.items()))
                parts.append(f"{sum(counts.values())} {word} ({said})")
        return ", ".join(parts)


class Written(WriterCommitMessage):
    """What a task tells the driver: where it was, what it counted, and the file with its bad rows."""

    def __init__(self, place: WriteScope, stats: WriteStats, quarantined: str | None) -> None:
        self.place = place
        self.stats = stats
        self.quarantined = quarantined
