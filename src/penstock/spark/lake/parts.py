"""Parts: which rows a task works on. A job is in one part, the same everywhere and always."""

from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ALL: Final = -1
"""The part of events that concern many jobs: every task looks at them."""
MOST: Final = 1024
OPEN_ROWS: Final = 100_000
"""Open rows of a part, which are rewritten with each batch that touches it."""
EVENTS: Final = 250_000
"""Events of a part, which are in the memory of one task."""
_BYTES: Final = 16
_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))


def parts_of(ids: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """The part of each job, by the end of its id; ALL where there is none. `count` is a power of two."""
    found = np.zeros(len(ids), np.int64)
    if count > 1 and len(ids):
        found = (_hashes(ids) & np.uint64(count - 1)).astype(np.int64)
    if ids.null_count:
        found[ids.is_null().to_numpy(zero_copy_only=False)] = ALL
    return found


def _hashes(ids: pa.Array) -> npt.NDArray[np.uint64]:
    # Filled, so that there is a place for each, whatever lies below a null.
    ids = ids.fill_null("")
    _, offsets, data = ids.buffers()
    ends = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1].astype(np.int64)
    letters = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    at = ends[1:, None] - 1 - np.arange(_BYTES)
    last = np.where(at >= ends[:-1, None], letters[np.maximum(at, 0)], 0).astype(np.uint8)
    words = np.ascontiguousarray(last).view(np.uint64)
    mixed = (words[:, 0] ^ (words[:, 1] * _MIX[1])) * _MIX[0]
    mixed ^= mixed >> np.uint64(29)
    return cast(npt.NDArray[np.uint64], mixed * _MIX[1] >> np.uint64(32))


def how_many(*, now: int | None, open_rows: int, events: int, cores: int) -> int:
    """Into how many parts a batch is cut; `now` is how many there are, which is changed only for much.

    Changing it rewrites all open rows.
    """
    wanted = max(-(-open_rows // OPEN_ROWS), -(-events // EVENTS), min(cores, events // 20_000), 1)
    wanted = min(1 << (wanted - 1).bit_length(), MOST)
    if now is None or wanted > now:
        return wanted
    is_far_too_many = now > 8 * wanted and open_rows < OPEN_ROWS
    return wanted if is_far_too_many else now


def bucket_of(part: int, count: int) -> str:
    """The name of a part, as the partition of its open rows has it."""
    return f"{part}-of-{count}"


def read_bucket(name: str) -> tuple[int, int]:
    """A part and how many there are."""
    part, _, count = name.partition("-of-")
    return int(part), int(count)


def is_shared(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two parts of different divisions may have a job in common."""
    fewer = min(one[1], other[1])
    return one[0] % fewer == other[0] % fewer
