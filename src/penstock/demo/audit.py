"""The verdict: the records of producer and handlers, compared with the event log and the store's jobs."""

from pathlib import Path
from typing import Final

import msgspec

from penstock.core.history import Checker, Verdict
from penstock.core.states import LIVE, State
from penstock.demo import record_file
from penstock.stores.protocol import Store
from penstock.stores.values import Query

CHUNK: Final = 1_000


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the demo; `orphaned` is the number of leases that the killed worker left."""

    produced: int
    executions: int
    orphaned: int
    seconds: float
    seed: int
    injected: str | None
    verdict: Verdict

    @property
    def ended(self) -> int:
        """Number of jobs that completed, failed or died."""
        return self.verdict.completed + self.verdict.failed + self.verdict.dead

    @property
    def is_proven(self) -> bool:
        """True if every accepted job is accounted for, and every promise was kept."""
        recovered = self.verdict.recovered >= self.orphaned
        return self.verdict.is_clean and self.produced == self.ended and recovered


async def audit(store: Store, producer: Path, handlers: Path) -> tuple[Verdict, int, int]:
    """The verdict, the number of jobs produced, and the number of executions; call it once nothing runs."""
    produced, executed = list(record_file.read_produced(producer)), list(record_file.read_executed(handlers))
    checker = Checker(produced=produced, executed=executed, in_order=store.numbers_in_order)
    cursor: str | int = 0
    while events := await store.events.read_events(record_file.REF, cursor, CHUNK):
        for event in events:
            checker.feed(event)
        cursor = events[-1].cursor
    live: dict[tuple[str, str, str], State] = {}
    query = Query(states=LIVE, limit=CHUNK, payloads=False, results=False)
    while True:
        page = await store.reads.find(record_file.REF, query)
        live |= {(job.tenant, job.queue, job.id): job.state for job in page.jobs}
        if page.next is None:
            break
        query = msgspec.structs.replace(query, after=page.next)
    return checker.finish(live), len({record.job for record in produced}), len(executed)
