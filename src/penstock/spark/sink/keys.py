"""The idempotency key of a row: the same for the same row of the same write, however often it runs."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from penstock.core.job import QueueRef
from penstock.spark.sink.values import encode

_BYTES: Final = 16


class KeyMaker:
    """Makes keys of rows within one write. Partitions and row numbers are not in them: they change."""

    def __init__(self, write_id: str) -> None:
        self._write_id = write_id
        self._queue: QueueRef | None = None
        self._begun: Any = None

    def make(self, queue: QueueRef, values: Sequence[Any]) -> str:
        """The key of the row with these values in its key columns, in this queue."""
        # Most rows are for the queue of the row before.
        if queue is not self._queue:
            of_write = encode([queue.tenant, queue.name, self._write_id])
            self._queue, self._begun = queue, hashlib.blake2b(of_write, digest_size=_BYTES)
        made = self._begun.copy()
        made.update(encode(values))
        return f"spark-{made.hexdigest()}"


def nonce_of(key: str, job: str, payload: bytes) -> str:
    """The nonce of a job whose id was chosen: the same work under the same key is the same job."""
    return hashlib.blake2b(encode([key, job]) + payload, digest_size=8).hexdigest()
