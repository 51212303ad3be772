"""What is written aside keeps its order and holds up nobody."""

import os
import re
import sys
from collections.abc import Iterator

import pytest

from penstock.telemetry.nonblocking_stderr import NonblockingStderr


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The reading end of a standard error that nobody reads."""
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "__stderr__", stream)
        yield reads
        # What still waits is written into a pipe without readers, and so at once.
        os.close(reads)


def test_a_standard_error_that_nobody_reads_holds_up_nobody(unread: int) -> None:
    aside = NonblockingStderr(limit=1 << 18)
    for _ in range(16):
        aside.write(b"x" * (1 << 16))
    aside.flush(0.01)

    read, left_out = b"", 0
    while read.count(b"x") + left_out < 1 << 20:
        read += os.read(unread, 1 << 16)
        left_out = sum(int(found) for found in re.findall(rb"(\d+) bytes were dropped", read))
    assert left_out > 0


def test_what_is_written_aside_keeps_its_order(unread: int) -> None:
    aside = NonblockingStderr()
    for number in range(100):
        aside.write(b"%d\n" % number)
    aside.flush()

    assert os.read(unread, 1 << 16).split() == [b"%d" % number for number in range(100)]
