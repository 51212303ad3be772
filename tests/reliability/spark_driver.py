"""A driver for every store at once: rows become jobs and events become tables, and each task fails once.

Run as `python -m tests.reliability.spark_driver MASTER FOLDER URLS`; the urls are JSON, by name;
words after them say how.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark import session
from penstock.spark.errors import TableError
from penstock.spark.pipeline import Pipeline
from tests.reliability.spark_traffic import WRITTEN
from tests.spark.conftest import SETTINGS, preloading

PATIENCE: Final = 300.0
MASTER: Final = "local[2,4]"
SPECULATION: Final = "speculation"
"""Tasks that take long are run twice at once."""
ONLY_READING: Final = "only-reading"
"""The driver brings events into tables, and writes no rows."""
OUT_OF_BREATH: Final = 75
"""How a driver ends whose processes did not start in time, or that another one was faster than."""
_LATE: Final = "Python worker failed to connect back"
QUICK: Final = {
    **SETTINGS,
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
    # Spark's own: checkpoints have to be whole, whenever a driver is killed.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    ),
    # Tasks that are to fail would fill the log; what a query fails with is told by its end.
    "spark.log.level": "FATAL",
    # More files than this are listed by a job of as many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # A lost executor counts as a failure of the tasks it had, which also fail by themselves.
    "spark.task.maxFailures": "10",
}


class Stumbling(Pipeline):
    """Each task fails once, with its files written; and some batches take their time between two commits."""

    def _on_executors(self, work: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
        time.sleep(random.uniform(0, 0.1))
        return super()._on_executors(_once_more(work), pieces)


def _once_more(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def stumbling(piece: Any) -> Any:
        done = work(piece)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("this task stumbles once")
        return done

    return stumbling


def stumble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows; the first try of every task fails half-way through them."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        if context.attemptNumber() == 0:
            raise RuntimeError("this task stumbles once")
        yield batch.slice(half)


def written(spark: SparkSession, name: str, url: str, folder: Path, *, once: bool) -> StreamingQuery:
    """The query that makes jobs of the rows in files."""
    source = spark.readStream.schema("file INT, n INT").option("maxFilesPerTrigger", 500 if once else 5)
    rows = source.json(str(folder / "files")).repartition(2)
    sink = rows.mapInArrow(stumble, rows.schema).writeStream.format("penstock")
    sink = sink.options(url=url, queue=WRITTEN.name, task="send", keyColumns="file,n", declare="true")
    sink = sink.option("checkpointLocation", str(folder / f"{name}.sink"))
    return (sink.trigger(availableNow=True) if once else sink.trigger(processingTime="0 seconds")).start()


def read(spark: SparkSession, name: str, url: str, folder: Path, *, once: bool) -> Pipeline:
    """The pipeline that brings the events into tables."""
    options = {"url": url, "maxEventsPerTrigger": "5000" if once else "300"}
    pipeline = Stumbling(spark, str(folder / name), options, every=None if once else 0.2)
    pipeline.start()
    return pipeline


def finish(spark: SparkSession, urls: Mapping[str, str], folder: Path) -> None:
    """Write and read all that was left, store by store."""
    for name, url in urls.items():
        assert written(spark, name, url, folder, once=True).awaitTermination(int(PATIENCE))
    for name, url in urls.items():
        is_more = True
        # A log may hold its newest events back for a moment, such as that of PostgreSQL.
        while is_more:
            pipeline = read(spark, name, url, folder, once=True)
            assert pipeline.wait(PATIENCE)
            is_more = pipeline.done.events > 0


class Driver:
    """The process of a driver, with all that it starts; ended as one."""

    def __init__(self, urls: Mapping[str, str], folder: Path, master: str, how: Sequence[str]) -> None:
        self._urls, self._folder = urls, folder
        self._log = folder / "driver.log"
        command = [sys.executable, "-m", "tests.reliability.spark_driver", master, str(folder)]
        self._command = [*command, json.dumps(dict(urls)), *how]
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log, preloading():
            return subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def wait_for_tries(self) -> None:
        """Until it has begun to write a batch of the events of every store."""
        self._wait_for("{name}/bronze/events/day=*/*")

    def wait_for_batches(self) -> None:
        """Until another batch of every store is in its tables, and one of rows in the store."""
        self._wait_for("{name}/silver/jobs/_delta_log/*.json", "{name}.sink/commits/*")

    def _wait_for(self, *patterns: str) -> None:
        asked = [pattern.format(name=name) for pattern in patterns for name in self._urls]
        before = {each: set(self._folder.glob(each)) for each in asked}
        give_up = time.monotonic() + PATIENCE
        while asked:
            if self._process.poll() == OUT_OF_BREATH:
                # One more death: what it left is taken up by the next, as after a kill.
                self.kill()
                self._process = self._started()
            assert self._process.poll() is None, f"the driver ended: {self._said()}"
            assert time.monotonic() < give_up, f"nothing new in {asked}: {self._said()}"
            time.sleep(0.02)
            asked = [each for each in asked if set(self._folder.glob(each)) <= before[each]]

    def kill(self) -> None:
        """SIGKILL to the driver and all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def kill_part(self, chance: random.Random, kind: str) -> None:
        """SIGKILL to an executor, or to a Python worker, once there is one."""
        words = {
            "executor": b"org.apache.spark.executor.CoarseGrainedExecutorBackend",
            "worker": b"pyspark.daemon",
        }
        give_up = time.monotonic() + PATIENCE
        while not (found := self._processes(words[kind])):
            assert time.monotonic() < give_up, f"there is no {kind}: {self._said()}"
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.kill(chance.choice(found), signal.SIGKILL)

    def _processes(self, word: bytes) -> list[int]:
        found = []
        for each in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                words = (each / "cmdline").read_bytes().split(b"\0")
                is_ours = os.getsid(int(each.name)) == self._process.pid
                if is_ours and word in words:
                    found.append(int(each.name))
        return sorted(found)

    def _said(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))[-5_000:]


@contextmanager
def driving(urls: Mapping[str, str], folder: Path, master: str = MASTER, *how: str) -> Iterator[Driver]:
    """The driver, for the time of the block; killed at its end."""
    driver = Driver(urls, folder, master, how)
    try:
        yield driver
    finally:
        driver.kill()


def _main(master: str, folder: Path, urls: Mapping[str, str], how: Sequence[str]) -> None:
    try:
        _drive(master, folder, urls, how)
    except TableError as error:
        # Of two drivers the one that was late.
        print(f"ends by itself: {error}", flush=True)
        os._exit(OUT_OF_BREATH)
    except PySparkException as error:
        if _LATE not in str(error):
            raise
        print(f"ends by itself: {error}".partition("\n")[0], flush=True)
        os._exit(OUT_OF_BREATH)


def _drive(master: str, folder: Path, urls: Mapping[str, str], how: Sequence[str]) -> None:
    more = {"spark.speculation": "true", "spark.speculation.multiplier": "1.1"} if SPECULATION in how else {}
    spark = session("penstock-torture", master, **QUICK, **more)
    pipelines = []
    for name, url in urls.items():
        pipelines.append(read(spark, name, url, folder, once=False))
        if ONLY_READING not in how:
            written(spark, name, url, folder, once=False)
        # All at once they would not have their processes started in time on a machine that is busy.
        while any(each.status["message"].startswith("Initializing") for each in spark.streams.active):
            time.sleep(0.05)
    while True:
        # The first of them that fails; none ends by itself.
        spark.streams.awaitAnyTermination(1)
        for pipeline in pipelines:
            pipeline.wait(0)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:])
