"""A table of a lake as Delta has it: its files now, how far it goes, and commits that nobody can double."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from penstock.spark.errors import TableError
from penstock.spark.lake.folder import Folder, one_line
from penstock.spark.lake.schemas import TableShape

LAKE: Final = "penstock.lake"
"""The property of a table that says which lake it is of."""
_SAID: Final = "penstock"
"""What commits of batches have in the log, and those of others lack."""
_KEPT: Final = "penstock_kept"
"""What upkeep keeps of it in its own commits, for logs that have lost the others; it may be a batch late."""
_HARMLESS: Final = frozenset(
    {
        "OPTIMIZE",
        "VACUUM START",
        "VACUUM END",
        "FSCK",
        "SET TBLPROPERTIES",
        "ADD CONSTRAINT",
        "DROP CONSTRAINT",
    }
)
"""What another program may do to a table: it leaves the rows as they are."""
_TRIES: Final = 20
_SETTINGS: Final = {
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "100",
    "delta.dataSkippingNumIndexedCols": "64",
}


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a table: its path below the table's folder, and the values of its partitions.

    `first_batch` and `last_batch` are those of its rows, where the table has them.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    stats: str = "{}"
    first_batch: int | None = None
    last_batch: int | None = None


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a commit of ours keeps in the log: how far the table goes with it.

    `offsets` is how far the event log of the store is read, and `bronze` the version of bronze that a version
    of silver was made from. `by` is who committed it, so that a commit whose answer was lost is known again.
    `figures` are of the batch: its events, duplicates, problems and gaps, and how old the newest event was.
    """

    batch: int
    offsets: Any = None
    bronze: int | None = None
    by: str = ""
    figures: Mapping[str, int] = {}


class Taken(Exception):
    """Somebody else has committed a batch with this number."""

    def __init__(self, table: str, batch: int) -> None:
        self.table, self.batch = table, batch
        super().__init__(f"batch {batch} of {table} was committed by somebody else")


class LakeTable:
    """One table. What it tells is of the version that it was loaded or committed at last."""

    def __init__(self, folder: Folder, shape: TableShape) -> None:
        self.shape = shape
        self.folder = folder.below(shape.path)
        self._delta: DeltaTable | None = None
        self._files: list[DataFile] | None = None
        self._said = Said(batch=-1)
        self._me = uuid4().hex

    @property
    def where(self) -> str:
        """Its address, for messages."""
        return self.folder.uri

    @property
    def delta(self) -> DeltaTable:
        """The handle; TableError where there is no table."""
        if self._delta is None:
            self.load()
        if self._delta is None:
            raise TableError(f"{self.where}: there is no table of a lake")
        return self._delta

    @property
    def version(self) -> int:
        """The version of the table."""
        return self.delta.version()

    @property
    def lake(self) -> str:
        """The id of the lake that the table is of; empty where it is of none."""
        return str(self.delta.metadata().configuration.get(LAKE) or "")

    @property
    def said(self) -> Said:
        """How far the table goes."""
        return self._said

    @property
    def batch(self) -> int:
        """The newest batch in it; -1 where it has none."""
        return self._said.batch

    def load(self) -> bool:
        """Look at its newest version; False where there is no table."""
        try:
            if self._delta is None:
                self._delta = DeltaTable(self.folder.uri)
            else:
                self._delta.update_incremental()
            self._files = None
            if not self.lake:
                raise TableError(f"{self.where}: a table of Delta that no Penstock made: use another folder")
            self._said = self._last_said()
        except TableNotFoundError:
            return False
        except (DeltaError, OSError) as error:
            raise TableError(f"{self.where}: {one_line(error)}") from None
        return True

    def create(self, lake: str) -> None:
        """Make it; nothing where it is there."""
        if self.load():
            return
        self.folder.make()
        try:
            DeltaTable.create(
                self.folder.uri,
                self.shape.schema,
                mode="ignore",
                partition_by=list(self.shape.partitions),
                name=self.shape.path.replace("/", "_"),
                description=self.shape.says,
                configuration={**_SETTINGS, LAKE: lake},
                commit_properties=_properties(Said(batch=-1)),
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            raise TableError(f"{self.where}: {one_line(error)}") from None
        if not self.load():
            raise TableError(f"{self.where}: the table was removed while it was made")

    def files(self) -> list[DataFile]:
        """The files that are the table."""
        if self._files is None:
            self._files = [_file_of(row) for row in pa.table(self.delta.get_add_actions()).to_pylist()]
        return self._files

    def columns(self) -> pa.Schema:
        """The columns of the table, in which there may be some that this version does not know."""
        return pa.schema(self.delta.schema())

    def fit(self, schema: pa.Schema) -> None:
        """Give the table the columns that it lacks; TableError where one is of another type."""
        there = self.columns()
        for field in schema:
            if field.name in there.names and there.field(field.name).type != field.type:
                found = there.field(field.name).type
                raise TableError(f"{self.where}: column {field.name} is {found}, and {field.type} comes now")
        new = [field for field in schema if field.name not in there.names]
        if new:
            wanted = DeltaSchema.from_arrow(pa.schema(new))
            fields: list[Field] = list(wanted.fields)
            try:
                self.delta.alter.add_columns(fields, commit_properties=_properties(self._said))
            except (DeltaError, OSError) as error:
                raise TableError(f"{self.where}: {one_line(error)}") from None
            self.load()

    def commit(self, said: Said, added: Sequence[DataFile], removed: Sequence[DataFile] = ()) -> None:
        """Commit a batch: its new files, and those that they stand for.

        The version of the application is read on the handle that commits: Delta accepts the same one again
        through a handle that was loaded later. Where somebody else was faster with something that does not
        matter, such as a compaction of other files, it is tried again. `Taken` where it was this batch.
        """
        said = msgspec.structs.replace(said, by=self._me)
        for tries in range(_TRIES):
            if tries and (self._said.batch, self._said.by) == (said.batch, said.by):
                # It was done, and the answer of the object store did not say so.
                return
            committed = self.delta.transaction_version(self.lake)
            if committed is not None and committed >= said.batch:
                raise Taken(self.where, said.batch)
            self._refuse_missing(removed)
            now = time.time_ns() // 1_000_000
            actions: list[AddAction | RemoveAction] = [
                AddAction(file.path, file.size, dict(file.partition), now, True, file.stats) for file in added
            ]
            actions += [
                RemoveAction(
                    path=file.path,
                    deletion_timestamp=now,
                    data_change=True,
                    partition_values=dict(file.partition),
                    size=file.size,
                )
                for file in removed
            ]
            try:
                self.delta.create_write_transaction(
                    actions,
                    "append",
                    self.delta.schema(),
                    list(self.shape.partitions),
                    commit_properties=_properties(said, Transaction(self.lake, said.batch)),
                    post_commithook_properties=PostCommitHookProperties(True, True),
                )
            except CommitFailedError:
                self.load()
                continue
            except (DeltaError, OSError) as error:
                raise TableError(f"{self.where}: {one_line(error)}") from None
            self._note(said, added, removed)
            return
        raise TableError(
            f"{self.where}: {_TRIES} commits failed one after the other: others write all the time"
        )

    def _note(self, said: Said, added: Sequence[DataFile], removed: Sequence[DataFile]) -> None:
        """Go on from what was committed; where others were as fast, look again at all of it."""
        before, known = self.version, self._files
        self.delta.update_incremental()
        if known is None or self.version != before + 1:
            self.load()
            return
        gone = {file.path for file in removed}
        self._files = [file for file in known if file.path not in gone] + list(added)
        self._said = said

    def _refuse_missing(self, removed: Sequence[DataFile]) -> None:
        if not removed:
            return
        there = {file.path for file in self.files()}
        if any(file.path not in there for file in removed):
            raise TableError(f"{self.where}: open rows were rewritten by another program: run it again")

    def _last_said(self) -> Said:
        """What the newest commit of ours says; TableError where others have changed rows since then."""
        committed = self.delta.transaction_version(self.lake)
        kept: Said | None = None
        for limit in (1, 16, None):
            for entry in self.delta.history(limit):
                if (said := entry.get(_SAID)) is not None:
                    return msgspec.convert(said, Said)
                if (said := entry.get(_KEPT)) is not None and said.get("batch") == committed:
                    kept = msgspec.convert(said, Said)
                if entry.get("operation") not in _HARMLESS:
                    raise TableError(
                        f"{self.where}: version {entry.get('version')} was written by another program "
                        f"({entry.get('operation')}): rows of a lake come from the events alone. Rebuild "
                        "it in a new folder with `penstock spark run --out NEW`"
                    )
        if kept is None:
            raise TableError(f"{self.where}: no commit in the log says how far the table goes")
        return kept


def upkeep_properties(said: Said) -> CommitProperties:
    """What commits that change no rows say."""
    return CommitProperties(custom_metadata={_KEPT: msgspec.to_builtins(said)})


def _properties(said: Said, *transactions: Transaction) -> CommitProperties:
    return CommitProperties(
        custom_metadata={_SAID: msgspec.to_builtins(said)},
        # Others may have committed this very batch: that has to be looked at first.
        max_commit_retries=0,
        app_transactions=list(transactions),
    )


def file_of(path: str, size: int, table: pa.Table, partition: Mapping[str, str | None]) -> DataFile:
    """A file that was written, with what the log says of its columns, so that readers can leave it out."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_list(column.type):
            continue
        nulls[name] = column.null_count
        if column.null_count < len(column) and _is_ordered(column.type):
            found = pc.min_max(column)
            lowest[name], highest[name] = _plain(found["min"], up=False), _plain(found["max"], up=True)
    stats = {"numRecords": table.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return DataFile(
        path,
        size,
        table.num_rows,
        partition,
        json.dumps(stats),
        lowest.get("batch_id"),
        highest.get("batch_id"),
    )


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def _plain(value: pa.Scalar, *, up: bool) -> Any:
    """As Delta's statistics have it: times in milliseconds, never beyond the true border."""
    if not pa.types.is_timestamp(value.type):
        return value.as_py()
    micros = value.cast(pa.int64()).as_py()
    millis = -(-micros // 1000) if up else micros // 1000
    seconds, rest = divmod(millis, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:03}Z"


def _file_of(row: Mapping[str, Any]) -> DataFile:
    lowest, highest = row.get("min") or {}, row.get("max") or {}
    partition = {
        name: None if value is None else str(value) for name, value in (row.get("partition") or {}).items()
    }
    return DataFile(
        row["path"],
        row["size_bytes"],
        row["num_records"] or 0,
        partition,
        first_batch=lowest.get("batch_id"),
        last_batch=highest.get("batch_id"),
    )


def total_rows(files: Iterable[DataFile]) -> int:
    """How many rows they have together."""
    return sum(file.rows for file in files)
