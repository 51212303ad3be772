"""A Bloom filter of two buffers that forgets what is old."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import msgspec

from penstock.core.errors import ConfigError, OptionError
from penstock.core.extras import install_command

MOST_BYTES: Final = 1 << 30
"""A buffer that the machine has no memory for would end the process, so larger ones are refused."""
LEAST_RATE: Final = 1e-15
"""A lower rate of false positives needs more bits than a hash of 64 bits can tell apart."""


class BloomSize(msgspec.Struct, frozen=True):
    """How many items one buffer of a filter takes, how often it may be wrong, and how long it is filled.

    `rate` is the share of items never added that a full buffer takes for added ones; `rotation` is seconds.
    """

    capacity: int
    rate: float
    rotation: float

    def __post_init__(self) -> None:
        if not _is_whole(self.capacity) or self.capacity < 1:
            raise OptionError("capacity", self.capacity, "the number of items of one buffer, 1 or more")
        if not _is_number(self.rate) or not LEAST_RATE <= self.rate < 1:
            raise OptionError("rate", self.rate, f"a share of false positives, {LEAST_RATE:g} to below 1")
        if not _is_number(self.rotation) or not self.rotation > 0:
            raise OptionError("rotation", self.rotation, "seconds, more than 0")
        if self.capacity * -math.log(self.rate) / math.log(2) ** 2 > 8 * MOST_BYTES:
            wanted = f"so many items that a buffer at this rate takes up to {MOST_BYTES >> 20} MiB"
            raise OptionError("capacity", self.capacity, wanted)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_whole(value)


IDEMPOTENCY: Final = BloomSize(1_000_000, 0.01, 30 * 60.0)
GHOST: Final = BloomSize(2_000_000, 1e-12, 6 * 3600.0)
CLEANUP: Final = BloomSize(2_000_000, 0.01, 6 * 3600.0)


class BloomCounts(msgspec.Struct, frozen=True):
    """What a filter answered since it was made.

    `hits` are items it took for added ones, `false_positives` those of them that the store did not confirm.
    """

    hits: int = 0
    misses: int = 0
    false_positives: int = 0
    rotations: int = 0


class Buffer(Protocol):
    """One filter that only grows, as `rbloom.Bloom` is one."""

    @property
    def size_in_bits(self) -> int: ...

    def add(self, item: str, /) -> None: ...

    def __contains__(self, item: str, /) -> bool: ...


def make_buffer(size: BloomSize) -> Buffer:
    """An empty buffer; ConfigError where the library for it is not installed."""
    try:
        from rbloom import Bloom
    except ImportError:
        raise ConfigError(f"Bloom filters need the package rbloom: {install_command('bloom')}") from None
    buffer: Buffer = Bloom(size.capacity, size.rate)
    return buffer


class RotatingBloom:
    """Remembers items for one rotation at least, and for two at most.

    Items go into the current buffer. The previous one is kept beside it until the next rotation, which comes
    when the current one was filled for `rotation` seconds or has taken `capacity` items. An item that was
    added is found until two rotations are over: before, there is no false negative. Threads may share a
    filter: changes take turns, and looking waits for none of them, because one look-up or addition of a str
    is a single step of the interpreter.
    """

    def __init__(
        self,
        size: BloomSize,
        *,
        clock: Callable[[], float] = time.monotonic,
        make: Callable[[BloomSize], Buffer] = make_buffer,
    ) -> None:
        self.size = size
        self._clock = clock
        self._make = make
        self._changing = threading.Lock()
        self._counting = threading.Lock()
        # Both are replaced at once, so that a reader never sees one rotation half done.
        self._buffers = (make(size), make(size))
        self._began = clock()
        self._added = 0
        self._hits = self._misses = self._false_positives = self._rotations = 0

    @property
    def memory_bytes(self) -> int:
        """What both buffers take."""
        return sum(-(-buffer.size_in_bits // 8) for buffer in self._buffers)

    @property
    def counts(self) -> BloomCounts:
        """The counters, of one moment."""
        with self._counting:
            return BloomCounts(self._hits, self._misses, self._false_positives, self._rotations)

    def maybe(self, items: Sequence[str]) -> list[bool]:
        """For each item: False where it was surely not added lately, True where it may have been."""
        is_due = self._clock() - self._began >= self.size.rotation
        if is_due and self._changing.acquire(blocking=False):
            # Where somebody else has it, a later look or addition rotates.
            try:
                self._rotate_by_time()
            finally:
                self._changing.release()
        current, previous = self._buffers
        found = [item in current or item in previous for item in items]
        hits = sum(found)
        with self._counting:
            self._hits += hits
            self._misses += len(found) - hits
        return found

    def add(self, items: Iterable[str]) -> None:
        """Remember items."""
        with self._changing:
            self._rotate_by_time()
            current = self._buffers[0]
            for item in items:
                if item in current:
                    continue
                if self._added >= self.size.capacity:
                    self._rotate()
                    current = self._buffers[0]
                current.add(item)
                self._added += 1

    def refuted(self, count: int = 1) -> None:
        """Count hits that the store did not confirm."""
        with self._counting:
            self._false_positives += count

    def _rotate_by_time(self) -> None:
        over = self._clock() - self._began
        if over >= self.size.rotation:
            self._rotate()
        if over >= 2 * self.size.rotation:
            # Nothing was added in all of the last rotation: what the buffer before it holds is too old.
            self._rotate()

    def _rotate(self) -> None:
        self._buffers = (self._make(self.size), self._buffers[0])
        self._began, self._added = self._clock(), 0
        with self._counting:
            self._rotations += 1
