"""Reading and deleting many jobs page by page, with progress on standard error."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from penstock.core.job import Job, QueueRef
from penstock.core.outcomes import Applied
from penstock.stores.protocol import Store
from penstock.stores.values import Query

BATCH: Final = 500
"""Jobs that one call deletes."""
PAGE: Final = 20 * BATCH
"""Jobs that one call reads. Pages are large, because some stores scan all jobs of a queue for each page."""
QUIET_UNDER: Final = 1_000
"""Below this number of jobs no progress is printed."""


async def each_page(store: Store, ref: QueueRef, query: Query) -> AsyncIterator[list[Job]]:
    """All pages of a query, from new to old; jobs may change or vanish between two pages."""
    while True:
        page = await store.reads.find(ref, query)
        if page.jobs:
            yield page.jobs
        if page.next is None:
            return
        query = replace(query, after=page.next)


async def delete_all(store: Store, ref: QueueRef, query: Query, total: int) -> tuple[int, int]:
    """Delete the jobs of a query; the numbers of deleted jobs, and of jobs kept because they run."""
    deleted = kept = 0
    with progress("deleting", total) as advance:
        async for jobs in each_page(store, ref, query):
            for start in range(0, len(jobs), BATCH):
                ids = [job.id for job in jobs[start : start + BATCH]]
                outcomes = await store.moves.delete(ref, ids)
                done = sum(isinstance(outcome, Applied) for outcome in outcomes)
                deleted, kept = deleted + done, kept + len(ids) - done
                advance(len(ids))
    return deleted, kept


@contextmanager
def progress(what: str, total: int, *, quiet_under: int = QUIET_UNDER) -> Iterator[Callable[[int], None]]:
    """Print progress on standard error: a bar on a terminal, lines elsewhere.

    Call the result with the number of items just done.
    """
    if total < quiet_under:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda many: bar.advance(task, many)
    else:
        yield _ProgressLines(what, total)


class _ProgressLines:
    """Progress as text: a line for each tenth that is done."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._done = self._printed_tenth = 0

    def __call__(self, many: int) -> None:
        self._done += many
        tenth = self._done * 10 // self._total
        if tenth > self._printed_tenth:
            self._printed_tenth = tenth
            sys.stderr.write(f"{self._what}: {self._done} of {self._total}\n")
