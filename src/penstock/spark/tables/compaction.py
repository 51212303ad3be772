"""Small batches made large, and files that no reader needs any longer removed."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from penstock.core.errors import TableError
from penstock.spark.tables import manifests
from penstock.spark.tables.manifests import Manifest, QueueCount, batch_name, span_of
from penstock.spark.tables.table import Batch, Table

TARGET_BYTES: Final = 128 << 20
GRACE_MS: Final = 3_600_000
"""How long files stay after they were replaced: readers that began before may still want them."""


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction did: how many batches it found and left, and how many old folders it removed."""

    table: str
    before: int
    after: int
    removed: int


def compact(
    table: Table,
    *,
    target_bytes: int = TARGET_BYTES,
    grace_ms: int = GRACE_MS,
) -> Compacted:
    """Make neighbouring batches one, up to the target size, and remove what was replaced long enough ago.

    Rows that stand for one are merged too. It may be stopped at any step, and done while batches are written:
    the old batches are the table until the new manifest stands, and the new one from then on.
    """
    before = table.live()
    for group in _groups(before, target_bytes):
        _compact(table, group, target_bytes)
    return Compacted(table.name, len(before), len(table.live()), sweep(table, grace_ms=grace_ms))


def _groups(live: Sequence[Manifest], target_bytes: int) -> Iterator[list[Manifest]]:
    """Neighbours that together are not larger than the target; a large one stands alone."""
    group: list[Manifest] = []
    for each in live:
        if group and sum(one.size for one in group) + each.size > target_bytes:
            if len(group) > 1:
                yield group
            group = []
        group.append(each)
    if len(group) > 1:
        yield group


def _compact(table: Table, group: Sequence[Manifest], target_bytes: int) -> None:
    batch = Batch(first=group[0].first, last=group[-1].last, query=group[-1].query, offsets=group[-1].offsets)
    size = sum(each.size for each in group)
    rows = table.merged(table.read(group))
    schema, files = table.stage(batch, rows.coalesce(1 + size // target_bytes))
    wanted, found = sum(each.rows for each in group), sum(each.rows for each in files)
    if found > wanted or (found < wanted and table.keeps_rows):
        raise TableError(
            f"{table.where}: batches {batch_name(batch.first, batch.last)} have {wanted} rows, not {found}"
        )
    table.commit(batch, schema, files, _summed(group))


def _summed(group: Sequence[Manifest]) -> tuple[QueueCount, ...]:
    sums: dict[tuple[str | None, str | None], QueueCount] = {}
    for count in (count for each in group for count in each.queues):
        known = sums.get((count.tenant, count.queue))
        sums[count.tenant, count.queue] = count if known is None else _sum(known, count)
    return tuple(sums.values())


def _sum(one: QueueCount, other: QueueCount) -> QueueCount:
    firsts = [each.first for each in (one, other) if each.first is not None]
    lasts = [each.last for each in (one, other) if each.last is not None]
    newest = [each.newest for each in (one, other) if each.newest is not None]
    return QueueCount(
        one.tenant,
        one.queue,
        min(firsts, default=None),
        max(lasts, default=None),
        one.rows + other.rows,
        one.duplicates + other.duplicates,
        one.problems + other.problems,
        one.gaps + other.gaps,
        max(newest, default=None),
    )


def sweep(table: Table, *, grace_ms: int = GRACE_MS) -> int:
    """Remove batches that others stand for and what killed tries left, both after a grace; how many folders.

    The grace has to be longer than writing a batch takes, and than any reader of the table.
    """
    now = time.time_ns() // 1_000_000
    live = table.live()
    names = [entry.name for entry in table.files.list(manifests.FOLDER)]
    kept = {file.path.rpartition("/")[0] for each in live for file in each.files}
    removed = 0
    for span in filter(None, map(span_of, names)):
        # Overlapping ones are replaced by several.
        heirs = [each for each in live if each.first <= span[1] and span[0] <= each.last]
        if any((each.first, each.last) == span for each in heirs):
            continue
        if max((each.written_at for each in heirs), default=now) + grace_ms <= now:
            # The manifest goes last, so that after a crash it is known what else has to go.
            table.files.delete(f"batch_id={batch_name(*span)}")
            table.files.delete(f"{manifests.FOLDER}/{manifests.file_name(*span)}")
            removed += 1
        else:
            kept |= _named(table, span)
    for folder in table.files.list(""):
        if folder.is_folder and folder.name.startswith("batch_id="):
            removed += _sweep_tries(table, folder.name, kept, now - grace_ms)
    for entry in table.files.list(manifests.FOLDER):
        is_part = entry.name.startswith(".") and not entry.name.endswith(".crc")
        if is_part and entry.modified <= now - grace_ms:
            table.files.delete(f"{manifests.FOLDER}/{entry.name}")
    return removed


def _sweep_tries(table: Table, folder: str, kept: set[str], until: int) -> int:
    tries = [entry for entry in table.files.list(folder) if entry.is_folder]
    gone = 0
    for each in tries:
        path = f"{folder}/{each.name}"
        # Object stores have no time of a folder's own: that of the newest file is asked as well.
        newest = max([each.modified, *(entry.modified for entry in table.files.list(path))])
        if path not in kept and newest <= until:
            table.files.delete(path)
            gone += 1
    if gone and gone == len(tries):
        table.files.delete(folder)
    return gone


def _named(table: Table, span: tuple[int, int]) -> set[str]:
    path = f"{manifests.FOLDER}/{manifests.file_name(*span)}"
    data = table.files.read(path)
    files = () if data is None else manifests.from_json(f"{table.where}/{path}", data).files
    return {file.path.rpartition("/")[0] for file in files}
