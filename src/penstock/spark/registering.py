"""Makes the format `penstock` known to a Spark session, whatever else is installed beside it."""

from typing import Any

from pyspark.sql import SparkSession, is_remote

from penstock.spark.source import PenstockSource


def register(spark: SparkSession) -> None:
    """Let the session read and write `format("penstock")` in this thread; once more changes nothing.

    To write, Spark looks for a format in the session that is active in the thread, and makes one active only
    in the thread that starts it: every other thread of the driver has to call this itself.
    """
    if not is_remote():
        java: Any = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
        java.setActiveSession(spark._jsparkSession)
    spark.dataSource.register(PenstockSource)
