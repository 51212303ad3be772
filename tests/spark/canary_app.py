"""Reads, streams, writes and fails on Spark with a password in the url, and keeps all that is shown.

Run as `python -m tests.spark.canary_app FOLDER URL WRONG_URL`; the variable JOBS_URL has the url too.
"""

import contextlib
import io
import sys
import urllib.request
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.spark import session
from tests.spark.conftest import MASTER, SETTINGS, preloading


def main(folder: Path, url: str, wrong_url: str) -> None:
    """Do it all once."""
    (folder / "log").mkdir()
    shown = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder / "log"),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
        "spark.sql.maxPlanStringLength": "1000000",
        "spark.sql.ui.explainMode": "formatted",
    }
    with preloading():
        spark = session("canary", MASTER, **{**SETTINGS, **shown})
    machine: Any = spark._jvm
    (folder / "java").write_text(str(machine.java.lang.System.getProperty("java.home")))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        use(spark, folder, url, wrong_url)
    (folder / "said").write_text(said.getvalue())
    for name, text in pages(spark):
        (folder / name).write_text(text)
    spark.stop()


def use(spark: SparkSession, folder: Path, url: str, wrong_url: str) -> None:
    """Everything that the format can do, and what Spark prints of it."""
    rows = spark.range(3).selectExpr("id", "cast(id AS string) AS _idempotency_key")
    rows.write.format("penstock").mode("append").options(
        url=url, queue="mail", task="send", declare="true"
    ).save()
    jobs = spark.read.format("penstock").options(url=url).load()
    (folder / "count").write_text(str(jobs.count()))
    jobs.where("state = 'dead'").explain(extended=True)
    jobs.groupBy("state").count().explain("formatted")
    print(repr(jobs), jobs.schema.json())
    here = spark.read.format("penstock").options(urlEnv="JOBS_URL").load()
    (folder / "count-by-variable").write_text(str(here.count()))
    spark.sql(f"CREATE TEMPORARY VIEW canary USING penstock OPTIONS (url '{url}')")
    spark.sql("SELECT count(*) FROM canary").explain(extended=True)
    spark.sql("DESCRIBE EXTENDED canary").show(truncate=False)
    stream = spark.readStream.format("penstock").options(url=url, table="events").load()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(query.lastProgress)
    for options in ({"url": wrong_url}, {"url": url, "colums": "id"}, {"url": url, "queue": "nowhere"}):
        try:
            spark.read.format("penstock").options(**options).load().collect()
        except PySparkException as error:
            print(error)


def pages(spark: SparkSession) -> list[tuple[str, str]]:
    """What the UI shows, as pages and as data."""
    root = str(spark.sparkContext.uiWebUrl)
    data = f"api/v1/applications/{spark.sparkContext.applicationId}"
    asked = {
        "environment": "environment/",
        "jobs": "jobs/",
        "stages": "stages/",
        "sql": "SQL/",
        "execution": "SQL/execution/?id=1",
        "streaming": "StreamingQuery/",
        "environment-data": f"{data}/environment",
        "sql-data": f"{data}/sql?details=true&planDescription=true&length=100",
        "stages-data": f"{data}/stages?details=true",
    }
    found = []
    for name, path in asked.items():
        with urllib.request.urlopen(f"{root}/{path}", timeout=30) as answer:
            found.append((f"ui-{name}", answer.read().decode()))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
