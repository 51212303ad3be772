"""Where Spark finds the format `penstock` by itself: it looks into every top-level module called pyspark_…"""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
