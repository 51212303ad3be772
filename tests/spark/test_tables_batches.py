"""A batch is in a table once, whole or not at all, wherever writing or compacting it was cut short."""

import json
import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from penstock.core.errors import ConfigError, OptionError, TableError
from penstock.spark import tables
from penstock.spark.tables import compaction, manifests
from penstock.spark.tables.bronze import Bronze
from penstock.spark.tables.files import Files, LocalFiles, files_at
from penstock.spark.tables.silver import SHAPES, Silver
from penstock.spark.tables.table import Batch, Table
from tests.core.histories import told_history
from tests.spark.tables_kit import damage, event_rows, frame, seen

QUERY = "a-query"


class Crash(BaseException):
    """Stands for the end of the process: nothing may catch it."""


class Crashing:
    """Files that crash before one of the calls that change something; Spark writes between them."""

    def __init__(self, files: Files, at: int) -> None:
        self.root = files.root
        self._files, self._left = files, at
        self.url, self.list, self.read, self.rows = files.url, files.list, files.read, files.rows

    def put(self, path: str, data: bytes) -> bool:
        self._count()
        return self._files.put(path, data)

    def delete(self, path: str) -> None:
        self._count()
        self._files.delete(path)

    def keep(self, paths: Sequence[str]) -> None:
        self._count()
        self._files.keep(paths)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Crash


def one(batch: int, query: str = QUERY) -> Batch:
    return Batch(first=batch, last=batch, query=query)


def numbers(spark: SparkSession, *values: int) -> DataFrame:
    return spark.createDataFrame(pa.table({"n": pa.array(values, pa.int32())})).coalesce(1)


def held(table: Table) -> list[int]:
    """What is in a table, as any reader of Parquet that follows the manifests sees it."""
    files = [file.path for manifest in table.live() for file in manifest.files]
    root = table.files.root.removeprefix("file://")
    return sorted(n for path in files for n in parquet.read_table(Path(root, path))["n"].to_pylist())


def crash_everywhere(
    act: Callable[[Files], object], made: Callable[[], Files], check: Callable[[], None]
) -> int:
    """Crash before each change in turn, each time on new files, and check; how many crashes."""
    for at in count(1):
        try:
            act(Crashing(made(), at))
        except Crash:
            check()
        else:
            return at - 1
    raise AssertionError


@pytest.fixture(params=["path", "address"])
def files(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Files:
    """A folder as a path, and as an address that goes through Hadoop."""
    folder = tmp_path / "a table"
    return files_at(str(folder) if request.param == "path" else folder.as_uri().replace("%20", " "), spark)


def test_files_are_made_once_listed_read_and_removed(files: Files) -> None:
    assert files.list("x") == []
    assert files.read("x/a") is None
    assert files.put("x/a", b"one") is True
    assert files.put("x/a", b"two") is False
    assert files.read("x/a") == b"one"
    (found,) = [entry for entry in files.list("x") if not entry.name.startswith(".")]
    assert (found.name, found.size, found.is_folder) == ("a", 3, False)
    assert files.list("")[0].is_folder
    files.delete("x")
    files.delete("x")
    assert files.list("x") == []


def test_a_table_is_what_its_manifests_name(spark: SparkSession, files: Files) -> None:
    table = Table(spark, files, "numbers")
    table.write(one(0), numbers(spark, 1, 2))
    table.write(one(1), numbers(spark))
    table.stage(one(2), numbers(spark, 3))

    assert held(table) == [1, 2]
    assert [(each.first, each.rows, len(each.files)) for each in table.live()] == [(0, 2, 1), (1, 0, 0)]
    assert table.live()[0].files[0].bytes > 0
    assert held(Table(spark, files, "numbers")) == [1, 2]


def test_a_repeated_batch_changes_nothing(spark: SparkSession, files: Files) -> None:
    table = Table(spark, files, "numbers")
    table.write(one(0), numbers(spark, 1))

    again = table.write(one(0), numbers(spark, 1, 1))

    assert again == table.live()[0]
    assert held(table) == [1]


def test_of_two_that_write_the_same_batch_one_does(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, LocalFiles(str(tmp_path)), "numbers")
    first, second = (table.stage(one(0), numbers(spark, 1)) for _ in range(2))

    kept = table.commit(one(0), *first)

    assert table.commit(one(0), *second) == kept
    assert held(table) == [1]
    assert not (tmp_path / second[1][0].path).exists()


@pytest.fixture(scope="module")
def three(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a table of three batches, to be copied."""
    folder = tmp_path_factory.mktemp("three")
    table = Table(spark, LocalFiles(str(folder)), "numbers")
    for batch in range(3):
        table.write(one(batch), numbers(spark, batch))
    return folder


@pytest.fixture
def fresh(three: Path, tmp_path: Path) -> Callable[[], Files]:
    """New files each time, with a table of three batches in them."""

    def copy() -> Files:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(three, tmp_path / "copy")
        return LocalFiles(str(tmp_path / "copy"))

    return copy


def test_a_batch_that_was_cut_short_anywhere_is_whole_once_it_is_repeated(
    spark: SparkSession, tmp_path: Path, fresh: Callable[[], Files]
) -> None:
    def act(files: Files) -> None:
        Table(spark, files, "numbers").write(one(3), numbers(spark, 3, 4))

    def check() -> None:
        table = Table(spark, LocalFiles(str(tmp_path / "copy")), "numbers")
        assert held(table) == [0, 1, 2]
        table.write(one(3), numbers(spark, 3, 4))
        assert held(table) == [0, 1, 2, 3, 4]

    # What was left, the new files, and the manifest.
    assert crash_everywhere(act, fresh, check) == 3


def test_bronze_and_silver_are_whole_wherever_a_batch_was_cut_short(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = event_rows(told_history().events)
    wanted = {name: seen(shape.of(frame(spark, rows))) for name, shape in SHAPES.items()}
    made = 0

    def write(wrap: Callable[[Files], Files]) -> None:
        bronze = Bronze(spark, wrap(LocalFiles(str(tmp_path / str(made) / "events"))))
        bronze.write(one(0), frame(spark, rows))
        for name in SHAPES:
            Silver(spark, wrap(LocalFiles(str(tmp_path / str(made) / name))), name).follow(bronze, QUERY)

    # The steps between the tables; those within one are tried elsewhere.
    for cut in SHAPES:
        made += 1

        def wrap(files: Files, cut: str = cut) -> Files:
            return Crashing(files, 1) if files.root.endswith(cut) else files

        with pytest.raises(Crash):
            write(wrap)
        write(lambda files: files)
        for name, whole in wanted.items():
            assert seen(tables.read(spark, str(tmp_path / str(made)), name)) == whole
        assert tables.read(spark, str(tmp_path / str(made)), "events").count() == len(rows)


def test_a_compaction_that_was_cut_short_anywhere_leaves_the_table_as_it_was(
    spark: SparkSession, tmp_path: Path, fresh: Callable[[], Files]
) -> None:
    def act(files: Files) -> None:
        compaction.compact(Table(spark, files, "numbers"), grace_ms=0)

    def check() -> None:
        files = LocalFiles(str(tmp_path / "copy"))
        table = Table(spark, files, "numbers")
        assert held(table) == [0, 1, 2]
        compaction.compact(table, grace_ms=0)
        assert held(table) == [0, 1, 2]
        assert [(each.first, each.last) for each in table.live()] == [(0, 2)]
        assert [entry.name for entry in files.list(manifests.FOLDER)] == [manifests.file_name(0, 2)]
        assert [entry.name for entry in files.list("") if entry.is_folder] == ["_manifests", "batch_id=0-2"]

    # The new files, the new manifest, and three times the old files and the old manifest.
    assert crash_everywhere(act, fresh, check) == 8


def test_a_compaction_leaves_large_batches_alone_and_old_files_for_a_while(
    spark: SparkSession, files: Files
) -> None:
    table = Table(spark, files, "numbers")
    for batch in range(4):
        table.write(one(batch), numbers(spark, *range(1000 * (batch == 1) + 1)))
    size = table.live()[0].size

    done = compaction.compact(table, target_bytes=2 * size)

    assert (done.before, done.after, done.removed) == (4, 3, 0)
    assert [(each.first, each.last) for each in table.live()] == [(0, 0), (1, 1), (2, 3)]
    assert len(files.list(manifests.FOLDER)) >= 5
    assert compaction.sweep(table, grace_ms=0) == 2
    assert len(held(table)) == 1004


def test_a_reader_that_began_before_a_compaction_ends_well(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, LocalFiles(str(tmp_path)), "numbers")
    for batch in range(2):
        table.write(one(batch), numbers(spark, batch))
    begun = table.read()

    compaction.compact(table)

    assert begun.count() == 2


def test_what_killed_tries_left_is_removed_after_the_grace(spark: SparkSession, files: Files) -> None:
    table = Table(spark, files, "numbers")
    table.write(one(0), numbers(spark, 1))
    table.stage(one(0), numbers(spark, 1))
    table.stage(one(1), numbers(spark, 2))

    assert compaction.sweep(table) == 0
    assert compaction.sweep(table, grace_ms=0) == 2
    assert held(table) == [1]
    assert [entry.name for entry in files.list("") if entry.is_folder] == ["_manifests", "batch_id=0"]


def test_another_querys_checkpoint_cannot_write_into_a_table(spark: SparkSession, files: Files) -> None:
    table = Table(spark, files, "numbers")
    table.write(one(0), numbers(spark, 1))

    for batch in (0, 1):
        with pytest.raises(TableError, match="belongs to the query a-query, and the checkpoint to another"):
            table.write(one(batch, "another"), numbers(spark, 1))
    assert held(table) == [1]


def test_a_batch_that_leaves_others_out_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, LocalFiles(str(tmp_path)), "numbers")
    with pytest.raises(TableError, match="the next batch of the query is 3, and the table is empty"):
        table.write(one(3), numbers(spark, 1))
    table.write(one(0), numbers(spark, 1))

    with pytest.raises(TableError, match="batch 0 is the newest, and 2 comes next"):
        table.write(one(2), numbers(spark, 1))


def test_damage_is_said_in_a_line(spark: SparkSession, tmp_path: Path, fresh: Callable[[], Files]) -> None:
    table = Table(spark, fresh(), "numbers")
    folder = tmp_path / "copy"
    second = folder / manifests.FOLDER / manifests.file_name(1, 1)
    text = second.read_text()

    second.unlink()
    with pytest.raises(TableError, match="between 0 and 2 has no manifest"):
        table.read()
    second.write_text("{")
    with pytest.raises(TableError, match="not a manifest"):
        table.read()
    second.write_text(json.dumps(json.loads(text) | {"format": 2, "files": 7}))
    with pytest.raises(TableError, match=r"written by a newer Penstock \(format 2, known is 1\)"):
        table.read()
    second.write_text(text)
    with pytest.raises(TableError, match="a table of numbers, not of others"):
        Table(spark, LocalFiles(str(folder)), "others").read()
    (folder / table.live()[0].files[0].path).unlink()
    with pytest.raises(TableError, match="names a file that is not there"):
        table.read()


def test_a_file_with_another_bit_is_never_read_as_if_it_were_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By the checksums within it: object stores keep none beside it."""
    table = Table(spark, LocalFiles(str(tmp_path)), "numbers")
    table.write(one(0), spark.range(2_000).selectExpr("hash(id) AS n").coalesce(1))
    file = tmp_path / table.live()[0].files[0].path
    damage(file)

    with pytest.raises(Py4JJavaError, match=file.name):
        table.read().agg(F.sum("n")).collect()


def test_tables_that_are_not_there_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no table, or nothing in it yet"):
        tables.read(spark, str(tmp_path), "jobs")
    with pytest.raises(OptionError, match="table: found 'job', wanted one of events, attempts, jobs"):
        tables.read(spark, str(tmp_path), "job")
    with pytest.raises(ConfigError, match="nowhere://here"):
        tables.read(spark, "nowhere://here", "jobs")
    with pytest.raises(OptionError, match="a path: an address needs a Spark session"):
        files_at("s3a://bucket/jobs")


@pytest.mark.parametrize(
    ("spans", "chosen"),
    [
        ([], []),
        ([(0, 0), (1, 1), (2, 2), (0, 1), (0, 2)], [(0, 2)]),
        # Two compactions at once: the way that leads to the end.
        ([(0, 4), (3, 6), *((at, at) for at in range(3)), (7, 7)], [(0, 0), (1, 1), (2, 2), (3, 6), (7, 7)]),
        ([(0, 1), (1, 2), (0, 0), (2, 2)], [(0, 1), (2, 2)]),
    ],
)
def test_each_batch_is_covered_once(spans: list[tuple[int, int]], chosen: list[tuple[int, int]]) -> None:
    assert manifests.cover("t", spans) == chosen


@pytest.mark.parametrize("spans", [[(3, 3), (4, 4)], [(1, 1)], [(1, 4), (2, 2)], [(0, 0), (2, 2)]])
def test_a_batch_without_a_manifest_is_missed(spans: list[tuple[int, int]]) -> None:
    """The first one as well: every table begins with batch 0."""
    with pytest.raises(TableError, match=r"a batch between 0 and \d has no manifest: some were removed"):
        manifests.cover("t", spans)


def test_columns_of_older_and_newer_batches_become_one_table(spark: SparkSession, files: Files) -> None:
    table = Table(spark, files, "numbers")
    older, newer = (
        numbers(spark, 1),
        numbers(spark, 2).select(F.col("n").cast("long"), F.lit("x").alias("more")),
    )
    table.write(one(0), older)
    table.write(one(1), newer)
    table.write(one(2), older)

    for _ in range(2):
        assert sorted((row.n, row.more) for row in table.read().collect()) == [(1, None), (1, None), (2, "x")]
        assert dict(table.read().dtypes) == {"n": "bigint", "more": "string"}
        compaction.compact(table)


def test_columns_that_do_not_go_together_are_named(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, LocalFiles(str(tmp_path)), "numbers")
    table.write(one(0), numbers(spark, 1))
    table.write(one(1), spark.createDataFrame([("one",)], "n string"))

    with pytest.raises(TableError, match="column n: int in one batch, string in another"):
        table.read()


def test_events_of_older_and_newer_versions_are_one_table_and_feed_silver(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = event_rows(told_history().events)
    whole = frame(spark, events)
    older = whole.drop("extra", "problem", "max_attempts").where("seq <= 20")
    newer = whole.where("seq > 20").withColumns({"extra": F.lit('{"new": 1}'), "novel": F.lit(1)})
    bronze = Bronze(spark, LocalFiles(str(tmp_path / "events")))
    for batch, rows in enumerate((older, newer)):
        bronze.write(one(batch), rows)
        for name in SHAPES:
            Silver(spark, LocalFiles(str(tmp_path / name)), name).follow(bronze, QUERY)

    found = tables.read(spark, str(tmp_path), "events")

    assert set(found.columns) == {*whole.columns, "novel", "batch_id", "ingested_at"}
    assert found.where("novel = 1 AND extra IS NOT NULL").count() == len(events) - 20
    for name, shape in SHAPES.items():
        assert seen(tables.read(spark, str(tmp_path), name)) == seen(shape.of(found))
