"""Sessions, and that nothing of Spark is loaded before it is wanted."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock.spark
from penstock.core.errors import ConfigError, OptionError
from penstock.spark import register, session
from tests.spark.conftest import MASTER, SparkPlace
from tests.spark.sink_kit import GIVEN

LOADED = """
import sys
import penstock, penstock.cli.commands, penstock.spark
penstock.cli.commands.build()
print([name for name in ("pyspark", "pyarrow", "pandas") if name in sys.modules])
"""


def test_nothing_of_spark_is_loaded_before_it_is_wanted() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_package_that_is_missing_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("penstock.spark.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    with pytest.raises(ConfigError, match=r"pip install '\.\[spark\]'` in a checkout"):
        _ = penstock.spark.register
    with pytest.raises(AttributeError, match="no attribute 'sessions_of'"):
        _ = penstock.spark.sessions_of


def test_a_second_session_is_the_first_with_what_is_asked_for(spark: SparkSession) -> None:
    again = session("another", MASTER, **{"spark.sql.shuffle.partitions": "1"})

    assert again is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"


def test_another_thread_of_the_driver_reads_and_writes_once_it_has_registered(
    spark: SparkSession, tmp_path: Path
) -> None:
    """To write, Spark looks into the session that is active in the thread, and none is."""
    place = SparkPlace("sqlite", f"sqlite:///{tmp_path / 'jobs.db'}")

    def work() -> int:
        register(spark)
        rows = spark.range(3).selectExpr("id AS n")
        rows.write.format("penstock").mode("append").options(url=place.url, **GIVEN).save()
        return place.read(spark).count()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == 3


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (None, "no such program"),
        ("echo 'No module named penstock' >&2; exit 1", "No module named penstock"),
        ("echo 3.9", "3.9"),
    ],
)
def test_workers_with_another_python_are_refused_with_the_variable_to_set(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, found: str
) -> None:
    program = tmp_path / "python"
    if said is not None:
        program.write_text(f"#!/bin/sh\n{said}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(program))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))

    with pytest.raises(ConfigError, match=rf"PYSPARK_PYTHON is {program}: {found}; wanted Python 3\."):
        register(spark)


def test_a_server_of_spark_connect_is_no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        OptionError, match=r"master: found 'sc://host', wanted a plain master: make a session"
    ):
        session(master="sc://host")
    monkeypatch.setenv("SPARK_REMOTE", "sc://other")
    with pytest.raises(OptionError, match="master: found 'SPARK_REMOTE=sc://other'"):
        session()


def test_on_one_machine_nobody_else_can_reach_it(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
