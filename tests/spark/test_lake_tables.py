"""Tables of a lake are right at any moment, whoever reads, writes beside, or dies half-way. Without Spark."""

import os
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import duckdb_extensions
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.core.errors import OptionError
from penstock.core.events import Event
from penstock.spark import lake as lakes
from penstock.spark.errors import TableError
from penstock.spark.lake import files, parts, upkeep
from penstock.spark.lake.folder import folder_at
from penstock.spark.lake.schemas import SHAPES, shape_of
from penstock.spark.lake.table import LakeTable, Said
from penstock.spark.schemas import EVENTS
from tests.core.histories import told_history
from tests.spark.lake_kit import (
    Row,
    add,
    bring,
    event_rows,
    expected_attempts,
    expected_jobs,
    here,
    made,
    text_of_row,
)
from tests.spark.test_lake_fold import many_histories

EXPECTED = {"attempts": expected_attempts, "jobs": expected_jobs}


class Crash(BaseException):
    """Stands for the end of the process: nothing may catch it."""


def delta(folder: Path, name: str) -> pa.Table:
    """A table as delta-rs reads it."""
    return DeltaTable(str(folder / SHAPES[name].path)).to_pyarrow_table()


def check(folder: Path, events: Sequence[Event]) -> None:
    """Hold all tables against the events and the fold of them."""
    assert Counter(delta(folder, "events")["seq"].to_pylist()) == Counter(event.seq for event in events)
    for name, fold in EXPECTED.items():
        found = delta(folder, name)
        columns = SHAPES[name].file_schema.names
        wanted = sorted(text_of_row({each: row.get(each) for each in columns}) for row in fold(events))
        assert sorted(map(text_of_row, found.select(columns).to_pylist())) == wanted, name


def counts_of(folder: Path) -> dict[str, list[Any]]:
    """What each engine counts and sums up: rows and a sum, table by table."""
    duckdb_extensions.import_extension("delta")
    sums = {"events": "seq", "attempts": "fence", "jobs": "version"}
    found: dict[str, list[Any]] = {"delta-rs": [], "Polars": [], "DuckDB": []}
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")
        for name, column in sums.items():
            place = str(folder / SHAPES[name].path)
            table = delta(folder, name)
            found["delta-rs"].append((table.num_rows, pc.sum(table[column]).as_py()))
            scanned = pl.scan_delta(place).select(pl.len(), pl.col(column).sum()).collect()
            found["Polars"].append(scanned.row(0))
            query = f"SELECT count(*), sum({column})::BIGINT FROM delta_scan('{place}')"
            found["DuckDB"].append(connection.sql(query).fetchone())
    return found


@pytest.fixture
def events() -> list[Event]:
    """A history of many jobs."""
    return many_histories(range(400, 410))


def batches_of(events: Sequence[Event], count: int) -> list[list[Row]]:
    """The events of one queue after the other, in batches."""
    rows = event_rows(events)
    size = -(-len(rows) // count)
    return [rows[at : at + size] for at in range(0, len(rows), size)]


@pytest.mark.parametrize("count", [1, 4])
def test_tables_have_the_rows_of_the_fold(tmp_path: Path, events: list[Event], count: int) -> None:
    bring(made(tmp_path), *batches_of(events, 5), parts=count)

    check(tmp_path, events)


def test_open_rows_lie_apart_and_only_those_of_touched_parts_are_rewritten(
    tmp_path: Path, events: list[Event]
) -> None:
    lake = made(tmp_path)
    *before, last = batches_of(events, 5)
    bring(lake, *before, parts=8)
    old = {file.path: file for file in lake.jobs.files()}

    bring(lake, [row for row in last if row["job"] == last[-1]["job"]], parts=8)

    new = {file.path for file in lake.jobs.files()}
    replaced = [file for path, file in old.items() if path not in new]
    assert len(replaced) <= 1
    assert all(file.partition["bucket"] for file in replaced)
    rows = delta(tmp_path, "jobs").to_pylist()
    assert {row["closed_day"] is None for row in rows if row["is_live"]} == {True}
    assert all((row["closed_day"] is None) == (row["bucket"] is not None) for row in rows)


def test_parts_may_become_more_and_fewer(tmp_path: Path, events: list[Event]) -> None:
    lake = made(tmp_path)
    for rows, count in zip(batches_of(events, 4), (1, 8, 2, 4), strict=True):
        bring(lake, rows, parts=count)

    check(tmp_path, events)


def test_a_job_is_in_one_part_whatever_stands_beside_it() -> None:
    ids = pa.array(["a", "", "job-7", None, "0192f3a4-0000-7000-8000-00000000000a", "é" * 40])

    alone = [parts.parts_of(ids.slice(at, 1), 16)[0] for at in range(len(ids))]

    assert parts.parts_of(ids, 16).tolist() == alone
    assert alone[3] == parts.ALL
    many = parts.parts_of(pa.array([f"job-{number}" for number in range(10_000)]), 16)
    assert min(Counter(many.tolist()).values()) > 400


def test_every_engine_counts_the_same_before_during_and_after_an_optimise_and_within_a_batch(
    tmp_path: Path, events: list[Event]
) -> None:
    lake = made(tmp_path)
    *first, last = batches_of(events, 6)
    bring(lake, *first)
    seen = [counts_of(tmp_path)]
    upkeep.optimize(lake.bronze)
    seen.append(counts_of(tmp_path))
    for table in (lake.attempts, lake.jobs):
        upkeep.optimize(table)
    seen.append(counts_of(tmp_path))
    for table in lake.tables:
        upkeep.vacuum(table, keep_hours=0)
    seen.append(counts_of(tmp_path))

    assert all(len({str(each) for each in found.values()}) == 1 for found in seen)
    assert len({str(found) for found in seen}) == 1
    # Bronze has the batch, silver not yet: each is right for its version.
    cut_ = add(lake, last)
    between = counts_of(tmp_path)
    assert len({str(each) for each in between.values()}) == 1
    assert between["Polars"][1:] == seen[0]["Polars"][1:]
    assert between["Polars"][0][0] == len(events)
    lake.follow(here, 2, cut_)
    check(tmp_path, events)


def test_a_file_that_no_version_has_is_in_no_count(tmp_path: Path, events: list[Event]) -> None:
    """As of a task that was killed, or run twice; a vacuum removes it."""
    lake = made(tmp_path)
    bring(lake, event_rows(events))
    stray = files.write(
        lake.bronze.folder, pa.Table.from_pylist(event_rows(events), EVENTS), {"day": "2026-01-31"}
    )

    check(tmp_path, events)
    removed = upkeep.vacuum(lake.bronze, keep_hours=0)

    assert [Path(path).name for path in removed] == [Path(stray.path).name]
    check(tmp_path, events)


class Crashing(LakeTable):
    """Ends the process before or after one of the commits of all tables."""

    left = 0

    def commit(self, said: Said, added: Any, removed: Any = ()) -> None:
        Crashing.left -= 1
        if Crashing.left == 0:
            raise Crash
        super().commit(said, added, removed)
        Crashing.left -= 1
        if Crashing.left == 0:
            raise Crash


def test_a_batch_that_was_cut_short_anywhere_is_finished_first(tmp_path: Path, events: list[Event]) -> None:
    first, second, third = batches_of(events, 3)
    bring(made(tmp_path / "start"), first)
    crashes = 0
    for at in range(1, 8):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "start", folder)
        lake = made(folder)
        lake.bronze, lake.attempts, lake.jobs = (Crashing(lake.folder, table.shape) for table in lake.tables)
        lake.open()
        Crashing.left = at
        try:
            bring(lake, second, parts=2)
        except Crash:
            crashes += 1

        again = made(folder)
        again.follow(here, 2)
        if again.bronze.batch == 0:
            bring(again, second)
        bring(again, third, parts=4)
        check(folder, events)
    assert crashes == 6


def test_of_two_runs_that_write_the_same_batch_one_does_and_the_other_ends(
    tmp_path: Path, events: list[Event]
) -> None:
    first, second = batches_of(events, 2)
    one = made(tmp_path)
    bring(one, first)
    other = made(tmp_path)

    bring(one, second)

    with pytest.raises(TableError, match="another run wrote batch 1 of events at the same time"):
        bring(other, second)
    check(tmp_path, events)


def test_a_zombie_cannot_commit_what_it_began_before_others_went_on(
    tmp_path: Path, events: list[Event]
) -> None:
    """Also where the handle that it commits with was loaded after them."""
    first, second = batches_of(events, 2)
    zombie = made(tmp_path)
    bring(zombie, first)
    bring(made(tmp_path), second)
    zombie.bronze.load()

    with pytest.raises(TableError, match="another run wrote batch"):
        zombie._commit(zombie.bronze, Said(batch=1), [])
    check(tmp_path, events)


def test_a_handle_that_has_seen_the_batch_of_another_run_cannot_commit_it_again(
    tmp_path: Path, events: list[Event]
) -> None:
    """Delta itself accepts an application version that the handle knows already."""
    first, second, third = batches_of(events, 3)
    one, other = made(tmp_path), made(tmp_path)
    bring(one, first)
    other.open()
    bring(other, second)
    one.bronze.delta.update_incremental()

    with pytest.raises(TableError, match="another run wrote batch 1 of events at the same time"):
        add(one, second)
    bring(made(tmp_path), third)
    check(tmp_path, events)


def test_silver_is_made_anew_from_bronze_where_it_is_gone(tmp_path: Path, events: list[Event]) -> None:
    bring(made(tmp_path), *batches_of(events, 4))
    shutil.rmtree(tmp_path / "silver")

    made(tmp_path).follow(here, 2)

    check(tmp_path, events)


def test_upkeep_beside_a_run_stops_neither(tmp_path: Path, events: list[Event]) -> None:
    lake, beside = made(tmp_path), made(tmp_path)
    for rows in batches_of(events, 8):
        bring(lake, rows)
        for table in beside.tables:
            upkeep.optimize(table)
            upkeep.vacuum(table)

    check(tmp_path, events)
    assert made(tmp_path).bronze.batch == 7


def test_optimised_days_have_one_file_and_versions_before_are_still_there(
    tmp_path: Path, events: list[Event]
) -> None:
    bring(made(tmp_path), *batches_of(events, 6))
    together = lakes.history(str(tmp_path))

    done = {each.table: each for each in lakes.optimize(str(tmp_path))}

    assert (done["events"].before, done["events"].after) == (6, 1)
    assert [each.batch for each in together] == [5, 4, 3, 2, 1, 0]
    assert [each.batch for each in lakes.history(str(tmp_path), 2)] == [5, 4]
    old = together[2]
    assert DeltaTable(str(tmp_path / "bronze/events"), version=old.versions["events"]).count() == 4 * -(
        -len(events) // 6
    )


def test_what_others_wrote_into_a_table_is_refused_and_what_leaves_rows_alone_is_not(
    tmp_path: Path, events: list[Event]
) -> None:
    lake = made(tmp_path)
    first, second = batches_of(events, 2)
    bring(lake, first)
    place = str(tmp_path / "silver/jobs")
    DeltaTable(place).optimize.compact()
    DeltaTable(place).vacuum(0, dry_run=False, enforce_retention_duration=False)
    bring(made(tmp_path), second)
    check(tmp_path, events)

    write_deltalake(place, DeltaTable(place).to_pyarrow_table().slice(0, 1), mode="append")

    with pytest.raises(
        TableError, match=r"silver/jobs: version \d+ was written by another program \(WRITE\)"
    ):
        made(tmp_path)
    with pytest.raises(TableError, match="Rebuild it in a new folder"):
        lakes.open_lake(str(tmp_path))


def test_tables_that_do_not_belong_together_are_refused(tmp_path: Path, events: list[Event]) -> None:
    first, second = batches_of(events, 2)
    for name in ("one", "other"):
        bring(made(tmp_path / name), first)
    shutil.copytree(tmp_path / "one", tmp_path / "older")
    bring(made(tmp_path / "one"), second)

    shutil.rmtree(tmp_path / "other/silver/jobs")
    shutil.copytree(tmp_path / "one/silver/jobs", tmp_path / "other/silver/jobs")
    with pytest.raises(TableError, match="belongs to another lake than bronze/events"):
        made(tmp_path / "other")
    shutil.rmtree(tmp_path / "one/bronze")
    with pytest.raises(TableError, match="the events are gone, and silver/attempts is there"):
        made(tmp_path / "one")
    shutil.copytree(tmp_path / "older/bronze", tmp_path / "one/bronze")
    with pytest.raises(TableError, match="the events were replaced by an older copy"):
        made(tmp_path / "one")


def test_a_lake_of_the_old_layout_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "_manifests").mkdir(parents=True)

    for act in (made, lambda folder: lakes.open_lake(str(folder))):
        with pytest.raises(
            TableError, match=r"layout before Delta tables.*penstock spark run --out NEW --once"
        ):
            act(tmp_path)


def test_tables_that_are_no_lakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="bronze/events: there is no table"):
        lakes.open_lake(str(tmp_path))
    write_deltalake(str(tmp_path / "bronze/events"), pa.table({"n": [1]}))
    with pytest.raises(TableError, match="a table of Delta that no Penstock made"):
        made(tmp_path)
    with pytest.raises(OptionError, match="table: found 'job', wanted one of events, attempts, jobs"):
        shape_of("job")
    (tmp_path / "file").write_text("")
    with pytest.raises((TableError, OSError), match="file"):
        made(tmp_path / "file" / "lake")
    for wrong in (" ", "a*b"):
        with pytest.raises(OptionError, match="folder: found"):
            folder_at(wrong)


def test_a_table_gets_the_columns_that_a_newer_version_has(tmp_path: Path, events: list[Event]) -> None:
    first, second = batches_of(events, 2)
    lake = made(tmp_path)
    bring(lake, first)
    shape = SHAPES["events"]
    newer = pa.schema([*shape.schema, pa.field("novel", pa.int32())])
    lake.bronze.fit(newer)
    assert lake.bronze.columns().names[-1] == "novel"

    # A version that does not know the column goes on with nulls in it.
    bring(made(tmp_path), second)

    check(tmp_path, events)
    assert delta(tmp_path, "events")["novel"].null_count == len(events)
    other = pa.schema([pa.field("novel", pa.string())])
    with pytest.raises(TableError, match="column novel is int32, and string comes now"):
        lake.bronze.fit(other)


def test_columns_are_documented_in_the_table_itself(tmp_path: Path) -> None:
    made(tmp_path)

    for name in SHAPES:
        table = DeltaTable(str(tmp_path / SHAPES[name].path))
        fields = pa.schema(table.schema())
        assert all(field.metadata and field.metadata[b"comment"] for field in fields), name
        assert table.metadata().description == SHAPES[name].says


def test_an_event_without_a_time_or_a_job_has_its_place(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"problem": "not JSON"},
        {"tenant": "default", "queue": "mail", "seq": 9, "move": "gap", "problem": "1 to 9"},
    ]
    events = told_history().events
    bring(made(tmp_path), [*event_rows(events), *rows], parts=4)

    found = delta(tmp_path, "events")
    assert found.num_rows == len(events) + 2
    assert found.filter(pc.is_null(found["day"])).num_rows == 2
    lakes.optimize(str(tmp_path))
    assert delta(tmp_path, "events").num_rows == len(events) + 2


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder as on a disk that cannot be written, for the time of the block; also for root."""
    paths = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0o555)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_disk_that_cannot_be_written_is_said_in_a_line_and_a_run_again_is_safe(events: list[Event]) -> None:
    first, second = batches_of(events, 2)
    # Where everybody may go, unlike the folders of tests.
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "lake"
        bring(made(folder), first)
        with read_only(folder):
            lake = made(folder)
            with pytest.raises(TableError, match=r"bronze/events: (Permission denied|Read-only file system)"):
                bring(lake, second)
            check(folder, events[: len(first)])
        bring(made(folder), second)
        check(folder, events)


def test_a_disk_that_is_full_is_said_in_a_line_and_a_run_again_is_safe(
    tmp_path: Path, events: list[Event]
) -> None:
    first, second = batches_of(events, 2)
    lake = made(tmp_path)
    bring(lake, first)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # As where there is room for the beginning of a file alone.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
    try:
        with pytest.raises(TableError, match="bronze/events: File too large"):
            bring(lake, second)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    check(tmp_path, events[: len(first)])
    bring(made(tmp_path), second)
    check(tmp_path, events)
