"""A side of a comparison, and how much it is given."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

CONCURRENCY: Final = 100


class Server(Protocol):
    """A server that answers."""

    url: str

    def spent(self) -> float:
        """Seconds of processor time that it has taken so far."""
        ...

    def listeners(self) -> int:
        """How many workers listen for wake-ups."""
        ...


@dataclass(frozen=True, slots=True)
class Side:
    """One row of the tables. Rates are per second, so `processing` and `enqueues` may be small for the slow.

    `worker` is the command line below `programs`, and `label` says what of it is not a default. `bulk` and
    `callers` say how it enqueues; `script` does that where a side is not written in Python. A fleet is a
    worker of several processes. `setup` is the command that readies an empty server for it, and
    `url_variable` where its command line looks for the server, if it does.
    """

    name: str
    programs: Path
    module: str
    worker: tuple[str, ...]
    label: str
    processing: int
    enqueues: int
    bulk: str
    callers: str = "100 coroutines"
    package: str = ""
    script: Path | None = None
    is_fleet: bool = False
    setup: tuple[str, ...] = ()
    url_variable: str = ""


class Plan(Protocol):
    """How much is measured, beside whom, and on which server. Ours is the first of the sides."""

    @property
    def sides(self) -> Sequence[Side]: ...

    @property
    def extras(self) -> Sequence[Side]:
        """Other ways to run the workers of some sides, measured for processing only."""
        ...

    @property
    def samples(self) -> int: ...

    @property
    def pause(self) -> float: ...

    @property
    def depths(self) -> tuple[int, int]: ...

    @property
    def claims(self) -> int: ...

    def processing(self, side: Side) -> int:
        """Jobs to work off."""
        ...

    def enqueues(self, side: Side) -> int:
        """Jobs to enqueue."""
        ...

    def serve(self, folder: Path) -> AbstractContextManager[Server]:
        """A fresh server, stopped at the end of the block."""
        ...
