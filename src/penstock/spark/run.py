"""Runs the pipeline until it has read everything, or until it is told to stop.

Under spark-submit, or by itself: `python -m penstock.spark.run --url sqlite:///jobs.db --out tables --once`.
"""

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock.core.errors import ConfigError, InvalidError, PenstockError
from penstock.spark.options import read_options
from penstock.spark.pipeline import Done, Pipeline
from penstock.spark.sessions import session
from penstock.spark.stores import refuse_missing_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.2
EVERY_SECONDS: Final = 5.0
_SAID: Final = re.compile(r"penstock(?:\.\w+)*\.errors\.\w+: (.+)")
_SPARK_SAID: Final = re.compile(r"^: org\.apache\.spark\.\S+: (.+)", re.MULTILINE)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `every` is in seconds, None to read once what is there; `options` are of the source."""

    out: str
    options: dict[str, str]
    every: float | None = None
    master: str | None = None


def start_session(master: str | None = None) -> "SparkSession":
    """The session of the pipeline: under spark-submit the one that is submitted, else one of its own."""
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark.sql import SparkSession

        from penstock.spark.registering import register

        spark = SparkSession.builder.appName("penstock").getOrCreate()
        register(spark)
        return spark
    return session("penstock", master or "local[*]")


def run(spark: "SparkSession", request: Run, tell: Callable[[Done], None] = lambda _: None) -> Done:
    """Run until the end, or until SIGTERM or SIGINT; what was done. `tell` is called now and then.

    PenstockError in one line for whatever goes wrong with the store, the options or the tables.
    """
    read_options({**request.options, "table": "events"}, role="readStream")
    pipeline = Pipeline(spark, request.out, request.options, every=request.every)
    with _told_to_stop() as told:
        try:
            pipeline.start()
            while not pipeline.wait(LOOK_SECONDS):
                tell(pipeline.done)
                if told.is_set():
                    pipeline.stop()
                    break
        except (PySparkException, Py4JError) as error:
            # A signal to the whole group ends Spark as well; what was not finished comes first the next time.
            if not told.is_set():
                raise plain(error) from error
    tell(pipeline.done)
    return pipeline.done


def plain(error: Exception) -> PenstockError:
    """What Penstock said somewhere within Spark, or else Spark's own first line."""
    text = str(error)
    if said := _SAID.findall(text):
        return PenstockError(said[-1].strip())
    # What comes through as an error of Java begins with the call, which says nothing.
    of_spark = _SPARK_SAID.findall(text) or [text.strip().partition("\n")[0]]
    return PenstockError(f"Spark: {of_spark[0].strip()}")


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Set by SIGTERM and SIGINT, for the time of the block."""
    told = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        told.set()

    before: dict[int, Any] = {each: signal.signal(each, tell) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; its exit code."""
    try:
        try:
            return _main(_parsed(arguments))
        except PySparkException as error:
            raise plain(error) from error
    except PenstockError as error:
        sys.stderr.write(f"penstock: error: {' '.join(str(error).split())}\n")
        return 2 if isinstance(error, InvalidError | ConfigError) else 1


def _main(given: argparse.Namespace) -> int:
    options = {"url": given.url, "urlEnv": given.url_env, "tenants": given.tenant}
    options["queues"] = ",".join(given.queue or ())
    options["maxEventsPerTrigger"] = given.max_events
    options["startingOffsets"] = given.start
    options["readerName"] = given.reader
    options["failOnDataLoss"] = "false" if given.allow_loss else None
    request = Run(
        out=given.out,
        options={name: value for name, value in options.items() if value},
        every=None if given.once else given.every,
        master=given.master,
    )
    # Before a Java is started.
    refuse_missing_file(read_options({**request.options, "table": "events"}, role="readStream").store_url)
    began = time.monotonic()
    spark = start_session(request.master)
    try:
        done = run(spark, request)
    finally:
        spark.stop()
    seconds = time.monotonic() - began
    sys.stderr.write(f"{done.events} events in {done.batches} batches, {seconds:.1f} s\n")
    return 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m penstock.spark.run", description=__doc__)
    parser.add_argument("--url", help="the store, such as sqlite:///jobs.db")
    parser.add_argument("--url-env", metavar="NAME", help="an environment variable that has the url")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="a path, or an address such as s3://…")
    parser.add_argument("--tenant", metavar="NAME", help="whose queues; * for all tenants")
    parser.add_argument("--queue", action="append", metavar="NAME", help="may be repeated; all if left out")
    parser.add_argument("--once", action="store_true", help="read what is there, and end")
    parser.add_argument("--every", type=float, default=EVERY_SECONDS, metavar="SECONDS")
    parser.add_argument("--start", metavar="WHERE", help="earliest, latest, or cursors as JSON")
    parser.add_argument(
        "--reader", metavar="NAME", help="the reader to register, whose unread events are kept"
    )
    parser.add_argument("--max-events", metavar="N", help="at most so many in a batch")
    parser.add_argument("--allow-loss", action="store_true", help="go on over events that were trimmed")
    parser.add_argument("--master", help="where Spark runs, if not under spark-submit")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
