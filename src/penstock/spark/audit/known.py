"""What earlier audits kept of jobs: rows of `found.SCHEMA`, each with the `run` that wrote it."""

from typing import Final

from pyspark.sql import DataFrame

from penstock.spark.audit.found import Kind

# What is known is much, and what is asked for little: nothing but that is moved.
_NEWEST: Final = f"""
SELECT newest.*
FROM (
    SELECT max_by(struct(*), run) AS newest
    FROM (
        SELECT /*+ BROADCAST(lives) */ known.*
        FROM {{known}} AS known LEFT SEMI JOIN {{lives}} AS lives ON lives.life = known.life
    )
    WHERE kind = {int(Kind.LIFE)}
    GROUP BY life
)
WHERE newest.packed IS NOT NULL
"""  # noqa: S608 (constants)

# As much as is still of use: the newest of each job that is there, and all instants.
_JOINED: Final = f"""
SELECT newest.*
FROM (
    SELECT max_by(struct(*), run) AS newest FROM {{known}}
    GROUP BY kind, life, if(kind = {int(Kind.LIFE)}, NULL, struct(text, number))
)
WHERE newest.kind <> {int(Kind.LIFE)} OR newest.packed IS NOT NULL
"""  # noqa: S608 (constants)


def newest(known: DataFrame, lives: DataFrame) -> DataFrame:
    """What is known of those of these jobs, by their hashes, that are there."""
    return known.sparkSession.sql(_NEWEST, known=known, lives=lives)


def joined(known: DataFrame) -> DataFrame:
    """The same knowledge with a row per job."""
    return known.sparkSession.sql(_JOINED, known=known)
