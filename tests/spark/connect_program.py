"""What a program does with a session of Spark Connect: reads, writes, streams, fills a lake and audits it.

Run as `python -m tests.spark.connect_program URL FOLDER`: a process has either such a session or a plain one.
It starts a server, which is in the same wheel, and prints what it saw as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.spark import lake, observed, register
from penstock.spark.audit import Proofs, audit, audit_since
from penstock.spark.audit.running import audit_store
from penstock.spark.run import Run, run
from tests.spark.conftest import MASTER

WRITTEN = 5


def main(url: str, folder: Path) -> dict[str, Any]:
    """Everything once, with what came of it."""
    spark = SparkSession.builder.remote(MASTER).getOrCreate()
    register(spark)
    penstock = {"url": url, "queue": "mail"}

    def read(table: str) -> int:
        return spark.read.format("penstock").options(**penstock, table=table).load().count()

    rows = spark.range(WRITTEN).selectExpr("id AS n")
    # The same write twice: it knows its rows.
    for _ in range(2):
        sink = rows.write.format("penstock").mode("append")
        sink.options(**penstock, task="send", keyColumns="n", writeId="w").save()
    rows.selectExpr("n + 100 AS n").write.parquet(str(folder / "rows"))
    streamed = spark.readStream.schema("n long").parquet(str(folder / "rows")).writeStream.format("penstock")
    streamed = streamed.options(**penstock, task="send", keyColumns="n")
    writing = streamed.option("checkpointLocation", str(folder / "sink")).trigger(availableNow=True).start()
    assert writing.awaitTermination(600)
    source = spark.readStream.format("penstock").options(**penstock, table="events").load()
    copied = observed(source).writeStream.format("parquet").option("checkpointLocation", str(folder / "c"))
    copying = copied.trigger(availableNow=True).start(str(folder / "copy"))
    assert copying.awaitTermination(600)
    progress = copying.lastProgress
    assert progress is not None

    done = run(spark, Run(out=str(folder / "lake"), options={"url": url}))
    of_lake = audit(lake.events(spark, str(folder / "lake")))

    def after(batch: int) -> Any:
        return lake.events(spark, str(folder / "lake"), after_batch=batch)

    since, proof = audit_since(spark, after, Proofs(str(folder / "audits")))
    of_store = audit_store(spark, url, tenant="default")
    found = {
        "kind": type(spark).__module__,
        "jobs": read("jobs"),
        "events": read("events"),
        "copied": spark.read.parquet(str(folder / "copy")).count(),
        # Over Connect a row of the progress has its values in a list.
        "observed": progress.observedMetrics["penstock"][0][0],
        "brought": done.events,
        "silver": lake.read(spark, str(folder / "lake"), "jobs").count(),
        "audited": [verdict.events for verdict in (of_lake, since, of_store)],
        "clean": [verdict.is_clean for verdict in (of_lake, since, of_store)],
        "compared": of_store.is_compared,
        "kept": proof.batch,
    }
    spark.stop()
    return found


if __name__ == "__main__":
    said = main(sys.argv[1], Path(sys.argv[2]))
    print(json.dumps(said), flush=True)
