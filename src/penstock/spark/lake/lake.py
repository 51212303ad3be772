"""A lake: three tables in a folder, each with its own log, and how silver follows bronze."""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import uuid4

import msgspec
from pyarrow import fs

from penstock.spark.errors import TableError
from penstock.spark.lake.bronze import Brought, Counts
from penstock.spark.lake.folder import Folder
from penstock.spark.lake.parts import how_many, is_shared, read_bucket
from penstock.spark.lake.schemas import ATTEMPTS, BRONZE, BUCKET, JOBS
from penstock.spark.lake.silver.step import Merged, Step, merge
from penstock.spark.lake.table import DataFile, LakeTable, Said, Taken, total_rows

P = TypeVar("P")
R = TypeVar("R")
Executors = Callable[[Callable[[Step], Merged], Sequence[Step]], list[Merged]]
"""How pieces of work are done: on executors, or one after the other where there are none."""
_MOST_EVENTS: Final = 4_000_000
"""Events that silver takes in one step, unless one batch has more."""


class Cut(msgspec.Struct, frozen=True):
    """Into how many parts a batch of events was cut, and which of them have any."""

    parts: int
    touched: frozenset[int]


class Lake:
    """The tables `events`, `attempts` and `jobs`.

    A batch is three commits, each of which leaves its table right: bronze with the position in the store's
    log, then attempts, then jobs. What a driver that died left out is done first by the next one. Attempts
    come before jobs because they look at open jobs as they were.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.bronze = LakeTable(folder, BRONZE)
        self.attempts = LakeTable(folder, ATTEMPTS)
        self.jobs = LakeTable(folder, JOBS)

    @property
    def tables(self) -> tuple[LakeTable, LakeTable, LakeTable]:
        """All of them, bronze first."""
        return self.bronze, self.attempts, self.jobs

    def table(self, name: str) -> LakeTable:
        """The table of that name."""
        return next(table for table in self.tables if table.shape.name == name)

    def open(self) -> None:
        """Look at the newest versions; TableError where a table is missing, or of another lake."""
        refuse_old_layout(self.folder)
        for table in self.tables:
            if not table.load():
                raise TableError(f"{table.where}: there is no table; `penstock spark run --out` makes them")
        self._refuse_strangers()

    def make(self) -> None:
        """The same, and make what is missing: silver is made anew from bronze."""
        refuse_old_layout(self.folder)
        is_there = self.bronze.load()
        lake = self.bronze.lake if is_there else f"penstock-{uuid4().hex}"
        if not is_there:
            for table in self.tables[1:]:
                if table.load():
                    raise TableError(
                        f"{self.bronze.where}: the events are gone, and {table.shape.path} is there"
                    )
        self.bronze.create(lake)
        # Of two that make it at once, the id of one is that of the lake.
        lake = self.bronze.lake
        for table in self.tables:
            table.create(lake)
            table.fit(table.shape.schema)
        self._refuse_strangers()

    def add(self, batch: int, offsets: object, brought: Sequence[Brought]) -> Counts:
        """Commit a batch of events to bronze, with how far the log is read."""
        files = [file for each in brought for file in each.files]
        counts = sum((each.counts for each in brought), Counts())
        said = Said(batch=batch, offsets=offsets, figures=counts.figures(time.time_ns() // 1_000_000))
        self._commit(self.bronze, said, files)
        return counts

    def follow(self, executors: Executors, cores: int, cut: Cut | None = None) -> None:
        """Bring silver as far as bronze is; `cut` is how the newest batch was cut."""
        while (done := self.jobs.batch) < self.bronze.batch:
            first = done + 1
            # What one of two tables has, the other gets alone.
            last = self.attempts.batch if self.attempts.batch > done else self._reach(first)
            self._step(executors, cores, first, last, cut if first == last == self.bronze.batch else None)

    def parts_for(self, events: int, cores: int) -> int:
        """Into how many parts a batch of so many events is to be cut."""
        opened = [*_open(self.jobs), *_open(self.attempts)]
        now = next((_part(file)[1] for file in opened), None)
        return how_many(now=now, open_rows=total_rows(_open(self.jobs)), events=events, cores=cores)

    def _step(self, executors: Executors, cores: int, first: int, last: int, cut: Cut | None) -> None:
        events = [file for file in self.bronze.files() if _has(file, first, last)]
        count = cut.parts if cut else self.parts_for(total_rows(events), cores)
        attempts, jobs = _open(self.attempts), _open(self.jobs)
        is_cut_anew = any(_part(file)[1] != count for file in (*attempts, *jobs))
        chosen = sorted(cut.touched) if cut and not is_cut_anew else range(count)

        def of(part: int, files: Sequence[DataFile]) -> list[DataFile]:
            return [file for file in files if is_shared(_part(file), (part, count))]

        paths = [file.path for file in events]
        steps = [
            Step(
                self.folder,
                part,
                count,
                first,
                last,
                paths,
                [file.path for file in of(part, attempts)],
                [file.path for file in of(part, jobs)],
            )
            for part in chosen
        ]
        done = executors(merge, steps)
        said = Said(batch=last, bronze=self.bronze.version)

        def touched(files: Sequence[DataFile]) -> list[DataFile]:
            return [file for file in files if is_cut_anew or _part(file)[0] in chosen]

        if self.attempts.batch < last:
            self._commit(
                self.attempts, said, [file for each in done for file in each.attempts], touched(attempts)
            )
        self._commit(self.jobs, said, [file for each in done for file in each.jobs], touched(jobs))

    def _reach(self, first: int) -> int:
        """The last batch of those that are taken in one step."""
        last, rows = first, 0
        for batch in range(first, self.bronze.batch + 1):
            rows += total_rows(file for file in self.bronze.files() if file.last_batch == batch)
            if rows > _MOST_EVENTS:
                break
            last = batch
        return last

    def _commit(
        self, table: LakeTable, said: Said, added: Sequence[DataFile], removed: Sequence[DataFile] = ()
    ) -> None:
        try:
            table.commit(said, added, removed)
        except Taken as error:
            raise TableError(
                f"{self.folder.uri}: another run wrote batch {error.batch} of {table.shape.name} at the same "
                "time: a lake has one run. Nothing is lost or doubled; end one of them"
            ) from None

    def _refuse_strangers(self) -> None:
        ids = {table.shape.path: table.lake for table in self.tables}
        for table in self.tables:
            if table.lake != self.bronze.lake:
                raise TableError(
                    f"{table.where}: belongs to another lake than {BRONZE.path} beside it: {ids}"
                )
            if table.batch > self.bronze.batch:
                raise TableError(
                    f"{table.where}: goes to batch {table.batch}, and {BRONZE.path} to {self.bronze.batch}: "
                    "the events were replaced by an older copy"
                )


def refuse_old_layout(folder: Folder) -> None:
    """TableError for a folder with tables from before Delta."""
    if _has_manifests(folder):
        raise TableError(
            f"{folder.uri}: a lake of the layout before Delta tables, which is not read any longer: rebuild "
            "it in a new folder with `penstock spark run --out NEW --once`, and remove this one"
        )


def _has_manifests(folder: Folder) -> bool:
    names = [f"{name}/_manifests" for name in ("events", "attempts", "jobs")]
    if folder.is_local:
        local = fs.LocalFileSystem()
        return any(
            found.type is fs.FileType.Directory
            for found in local.get_file_info([f"{folder.uri}/{name}" for name in names])
        )
    return False


def _open(table: LakeTable) -> list[DataFile]:
    return [file for file in table.files() if file.partition.get(BUCKET)]


def _part(file: DataFile) -> tuple[int, int]:
    return read_bucket(file.partition[BUCKET] or "")


def _has(file: DataFile, first: int, last: int) -> bool:
    """Whether a file may have rows of these batches."""
    is_before = file.last_batch is not None and file.last_batch < first
    is_after = file.first_batch is not None and file.first_batch > last
    return not (is_before or is_after)
