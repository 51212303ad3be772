"""Going through many jobs page by page, with progress for people."""

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
"""Jobs that are deleted by one call."""
PAGE: Final = 20 * BATCH
"""Jobs that are looked for by one: a store may have to go through all of them for each page."""
QUIET_UNDER: Final = 1_000
"""Fewer jobs than this are done before a progress bar could be read."""


async def each_page(store: Store, ref: QueueRef, query: Query) -> AsyncIterator[list[Job]]:
    """All pages of a query. Pages go from new to old by cursor, so jobs may be moved away in between."""
    while True:
        page = await store.find(ref, query)
        if page.jobs:
            yield page.jobs
        if page.next is None:
            return
        query = replace(query, after=page.next)


async def delete_all(store: Store, ref: QueueRef, query: Query, total: int) -> tuple[int, int]:
    """Delete the jobs of a query that are not running; how many went, and how many had moved on."""
    deleted = kept = 0
    with progress("deleting", total) as advance:
        async for jobs in each_page(store, ref, query):
            for start in range(0, len(jobs), BATCH):
                ids = [job.id for job in jobs[start : start + BATCH]]
                outcomes = await store.delete(ref, ids)
                done = sum(isinstance(outcome, Applied) for outcome in outcomes)
                deleted, kept = deleted + done, kept + len(ids) - done
                advance(len(ids))
    return deleted, kept


@contextmanager
def progress(what: str, total: int, *, quiet_under: int = QUIET_UNDER) -> Iterator[Callable[[int], None]]:
    """Call the result with the number just done: a bar on a terminal, lines elsewhere, both on stderr."""
    if total < quiet_under:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda many: bar.advance(task, many)
    else:
        yield _Lines(what, total)


class _Lines:
    """One line per tenth."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._done = self._told = 0

    def __call__(self, many: int) -> None:
        self._done += many
        tenth = self._done * 10 // self._total
        if tenth > self._told:
            self._told = tenth
            sys.stderr.write(f"{self._what}: {self._done} of {self._total}\n")
