"""Makes the format `penstock` known to a Spark session, whatever else is installed beside it."""

from pyspark.sql import SparkSession

from penstock.spark.source import PenstockSource


def register(spark: SparkSession) -> None:
    """Let the session read and write `format("penstock")`; once more changes nothing."""
    spark.dataSource.register(PenstockSource)
