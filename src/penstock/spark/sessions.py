"""A Spark session with what Penstock's tables want, and a Java that is there."""

import os
import sys

from pyspark.sql import SparkSession

from penstock.core.errors import OptionError
from penstock.spark.java import java_home
from penstock.spark.registering import register

LOOPBACK = "127.0.0.1"


def session(app_name: str = "penstock", master: str = "local[*]", **conf: str) -> SparkSession:
    """A session that knows the format `penstock`; the running one, if there is one.

    `conf` is Spark's own, as in `**{"spark.sql.shuffle.partitions": "8"}`, and wins over what is set here:
    times in UTC and to the microsecond, filters handed to the store, and on one machine no address that
    others reach. For a session of another making, as under spark-submit, there is `register(spark)`.
    """
    if master.startswith("sc:") or os.environ.get("SPARK_REMOTE"):
        # What Spark makes of the two together depends on what was started before.
        found = master if master.startswith("sc:") else f"SPARK_REMOTE={os.environ['SPARK_REMOTE']}"
        wanted = "a plain master: make a session of Spark Connect yourself, and call register(spark)"
        raise OptionError("master", found, wanted)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
    if SparkSession.getActiveSession() is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["JAVA_HOME"] = str(java_home())
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    builder = SparkSession.builder.appName(app_name).master(master)
    spark = builder.config(map={**settings, **conf}).getOrCreate()
    register(spark)
    return spark
