"""Records that the producer and the handlers write themselves, to check the store against."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.core.history import Executed, Produced
from penstock.core.job import DEFAULT_TENANT, QueueRef
from penstock.demo.job_plan import QUEUE

T = TypeVar("T")

REF = QueueRef(DEFAULT_TENANT, QUEUE)


class RecordFile:
    """A file of lines to which many processes append at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # One write per call on a file opened for appending: lines of different processes do not mix.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *entries: tuple[object, ...]) -> None:
        """Append entries, one line each."""
        os.write(self._file, b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_produced(path: Path) -> Iterator[Produced]:
    """The jobs that the producer recorded, each after its enqueue had returned."""
    for (job,) in _read_lines(path, tuple[str]):
        yield Produced(REF, job)


def read_executed(path: Path) -> Iterator[Executed]:
    """The executions that the handlers recorded, each at its beginning."""
    for job, delivery, fence in _read_lines(path, tuple[str, int, int]):
        yield Executed(REF, job, delivery, fence)


def _read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for line in file:
            yield decoder.decode(line)
