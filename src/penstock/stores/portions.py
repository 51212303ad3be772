"""Reads of many large records, portion by portion, so that their number decides nothing about memory."""

from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.core.job import Job, QueueRef
from penstock.stores.protocol import Reads

PORTION: Final = 64
"""Records with a payload or result that are read in one call: each of these can be a mebibyte."""


async def slim_jobs(store: Reads, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
    """The records without their payloads, results and progress."""
    found: list[Job | None] = []
    for start in range(0, len(ids), PORTION):
        found += map(_slim, await store.get(queue, ids[start : start + PORTION]))
    return found


def _slim(job: Job | None) -> Job | None:
    return None if job is None else msgspec.structs.replace(job, payload=b"", result=None, progress=None)
