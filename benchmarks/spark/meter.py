"""A Spark session to measure with, and the time that work takes: on the clock and of processors."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.machine import spent
from benchmarks.spawn import Figures
from penstock.spark import session

CORES: Final = 2
WARM: Final = 2_000
"""Rows of the run before the measured one: what is compiled and started once is not measured."""


def measured_session(**more: str) -> SparkSession:
    """A session of two cores, with nothing that only people look at."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(2 * CORES),
        "spark.driver.memory": "3g",
    }
    return session("penstock-bench", f"local[{CORES}]", **settings, **more)


def timed(work: Callable[[], object], count: int) -> Figures:
    """`rate` per second, and `cpu`: processor seconds of this process and all below it, per million."""
    before, start = _spent(), time.perf_counter()
    work()
    took, used = time.perf_counter() - start, _spent() - before
    return {"rate": count / took, "cpu": used / count * 1e6}


def _spent() -> float:
    return spent(_tree(os.getpid()), with_ended=True)


def _tree(pid: int) -> list[int]:
    """A process and all that it started: the Java machine, and the Python workers below it."""
    found = [pid]
    # Threads and processes may end while they are looked at.
    with suppress(FileNotFoundError):
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found += _tree(int(child))
    return found
