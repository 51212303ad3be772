"""Makes the format `penstock` known to a Spark session, whatever else is installed beside it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession, is_remote

from penstock.core.errors import ConfigError
from penstock.spark.source import PenstockSource

_SECONDS: Final = 120
_ASKED: Final = "import sys, penstock.spark.source; print('%d.%d' % sys.version_info[:2])"


def register(spark: SparkSession) -> None:
    """Let the session read and write `format("penstock")` in this thread; once more changes nothing.

    To write, Spark looks for a format in the session that is active in the thread, and makes one active only
    in the thread that starts it: every other thread of the driver has to call this itself.
    """
    if not is_remote():
        _refuse_other_python(spark.sparkContext.pythonExec)
        java: Any = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
        java.setActiveSession(spark._jsparkSession)
    spark.dataSource.register(PenstockSource)


def _refuse_other_python(program: str) -> None:
    """ConfigError for a Python of workers that cannot import what is registered here.

    Spark starts `PYSPARK_PYTHON`, or `python3` of the PATH, whatever runs the driver, and says of the wrong
    one only that some module is not there.
    """
    found = shutil.which(program)
    if found is not None and Path(found).absolute() == Path(sys.executable).absolute():
        return
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    said = "no such program" if found is None else _version_of(found)
    if said == here:
        return
    name = (
        "PYSPARK_PYTHON"
        if os.environ.get("PYSPARK_PYTHON")
        else "PYSPARK_PYTHON is not set, and Spark's default"
    )
    raise ConfigError(
        f"the Python of Spark's workers: {name} is {program}: {said}; wanted Python {here} with Penstock. "
        f"Set PYSPARK_PYTHON={sys.executable} before the session is made"
    )


def _version_of(program: str) -> str:
    """The version of a Python that has Penstock, or what is wrong with it."""
    try:
        done = subprocess.run(  # noqa: S603 (the Python that Spark would start)
            [program, "-c", _ASKED], capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return done.stdout.strip()
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
