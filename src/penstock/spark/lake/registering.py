"""Tables of a lake as names for SQL: views of a session, or of a catalog that outlives it."""

import re
from typing import Final

from pyspark.sql import SparkSession

from penstock.core.errors import OptionError
from penstock.spark.lake.folder import folder_at
from penstock.spark.lake.lake import Lake
from penstock.spark.lake.reading import rows_of
from penstock.spark.lake.schemas import SHAPES

_NAME: Final = re.compile(r"\w+")
BASE: Final = "penstock_lake"
"""The table of the format in a catalog, which has no rows of its own: views over it say what they read."""


def register(spark: SparkSession, folder: str, database: str | None = None) -> list[str]:
    """Make views `bronze_events`, `silver_attempts` and `silver_jobs`; their names.

    Without a database they are of this session and of the versions that the tables have now, read by Spark
    itself. With one they stay in the catalog, and each query reads the newest version, through the format.
    """
    lake = Lake(folder_at(folder))
    lake.open()
    names = {shape.name: shape.path.replace("/", "_") for shape in SHAPES.values()}
    if database is None:
        for name, view in names.items():
            rows_of(spark, folder, name).createOrReplaceTempView(view)
        return list(names.values())
    if _NAME.fullmatch(database) is None:
        raise OptionError("database", database, "a name of letters, digits and underscores")
    uri = lake.folder.uri.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    made = []
    for name, view in names.items():
        base = f"{database}.{BASE}_{name}"
        options = f"(lake '{uri}', table '{name}')"
        spark.sql(f"DROP TABLE IF EXISTS {base}")
        spark.sql(f"CREATE TABLE {base} USING penstock OPTIONS {options}")
        # Spark hands no options to a table of a catalog when it is read: the view says them.
        columns = ", ".join(
            f"{field.name} COMMENT '{_comment(field.metadata)}'" if field.metadata else field.name
            for field in SHAPES[name].schema
        )
        text = f"SELECT * FROM {base} WITH ('lake' = '{uri}', 'table' = '{name}')"  # noqa: S608 (checked above)
        spark.sql(f"CREATE OR REPLACE VIEW {database}.{view} ({columns}) AS {text}")
        made.append(f"{database}.{view}")
    return made


def _comment(metadata: dict[bytes, bytes]) -> str:
    return metadata.get(b"comment", b"").decode().replace("'", "\\'")
