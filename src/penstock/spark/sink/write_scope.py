"""Which write, which batch and which partition a task works on; the same when it is run again."""

import hashlib
import os
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from pyspark import TaskContext

from penstock.spark.options import SourceOptions
from penstock.spark.sink.columns import Columns
from penstock.spark.sink.values import encode

_LONGEST: Final = 100
"""Characters of a write's id in the name of a file: file systems take 255 bytes for the whole of it."""


class WriteScope(msgspec.Struct, frozen=True):
    """The part of a write that one task does. `batch_id` is None outside of streams."""

    write_id: str
    batch_id: int | None = None
    partition: int = 0

    def prefix(self, scope: str) -> str:
        """What names of files of this write and batch begin with."""
        # A dot is in none of the parts, so that no name is the beginning of another's.
        batch = "batch" if self.batch_id is None else str(self.batch_id)
        return f"{_safe(self.write_id)}.{scope}.{batch}."


def scope_here(write_id: str | None, made: str) -> WriteScope:
    """Where this task is. A write without an id has that of its query, or else the one made for it."""
    task = TaskContext.get()
    if task is None:
        return WriteScope(write_id or made)
    query, batch = (
        task.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId")
    )
    return WriteScope(write_id or query or made, None if batch is None else int(batch), task.partitionId())


def scope_of(options: SourceOptions, columns: Columns) -> str:
    """Eight letters that tell apart writes under one id: to other queues, or with another operation.

    Within a streaming batch writes have the same id without having been given one, and may get their queues
    from columns: what else differs tells those apart.
    """
    told: list[Any] = [options.operation, options.tenants, options.queues]
    if options.write_id is None:
        told += [options.task, options.key_columns, sorted(columns.names)]
    return hashlib.blake2b(encode(told), digest_size=4).hexdigest()


def _safe(text: str) -> str:
    """The text as part of a file name; two texts never become the same."""
    safe = re.sub(
        r"[^A-Za-z0-9_-]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text
    )
    if len(safe) <= _LONGEST:
        return safe
    # What follows the tilde is no other's: a tilde of the text would be escaped.
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{safe[: _LONGEST - len(digest) - 1]}~{digest}"


def slots_here() -> int | None:
    """How many tasks may run at once, by the settings of the session; None where they do not say."""
    task = TaskContext.get()
    return 1 if task is None else slots_in(task.getLocalProperty)


def slots_in(setting: Callable[[str], str | None]) -> int | None:
    """How many tasks may run at once, by these settings."""
    master = setting("spark.master") or ""
    if found := re.fullmatch(r"local-cluster\[(\d+),\s*(\d+),.*\]", master):
        cores = int(found[1]) * int(found[2])
    elif found := re.fullmatch(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?", master):
        cores = _cores() if found[1] == "*" else int(found[1] or 1)
    elif most := setting("spark.cores.max"):
        cores = int(most)
    elif instances := setting("spark.executor.instances"):
        cores = int(instances) * int(setting("spark.executor.cores") or 1)
    else:
        return None
    return max(1, cores // int(setting("spark.task.cpus") or 1))


def _cores() -> int:
    """The cores of this machine that may be used; Spark's Java may use fewer, and never more."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
