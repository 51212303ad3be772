"""Shows how far a run is: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Steps(Protocol):
    """Told of each step before it begins."""

    def begin(self, what: str) -> None: ...


@contextmanager
def steps(total: int) -> Iterator[Steps]:
    """Steps that are shown on standard error, so that the tables can go elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(total)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        yield _Bar(progress, total)


class _Bar:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)
        self._begun = 0

    def begin(self, what: str) -> None:
        self._progress.update(self._task, completed=self._begun, description=what)
        self._begun += 1


class _Lines:
    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = 0
        self._start = time.monotonic()

    def begin(self, what: str) -> None:
        self._begun += 1
        print(
            f"{self._begun}/{self._total}  {time.monotonic() - self._start:.0f} s  {what}",
            file=sys.stderr,
            flush=True,
        )
