"""Spark Connect: source, sink, stream, the lake and the audit do what they do in a plain session."""

import json
import os
import subprocess
import sys
from pathlib import Path

from penstock.spark import java_home
from tests.kit.waiting import PATIENCE
from tests.spark.conftest import CONF, SparkPlace
from tests.spark.connect_program import WRITTEN
from tests.spark.test_lake_pipeline import fill


def test_a_program_over_spark_connect_does_what_it_does_in_a_plain_session(tmp_path: Path) -> None:
    place = SparkPlace("sqlite", f"sqlite:///{tmp_path}/jobs.db")
    before = len(fill(place, "a", "b", "c"))
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(CONF.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(
            [str(CONF.parent.parent / "preloaded"), os.environ.get("PYTHONPATH", "")]
        ),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_program", place.url, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])

    events = before + 2 * WRITTEN
    jobs = 3 + 2 * WRITTEN
    assert "connect" in found.pop("kind")
    assert found == {
        "jobs": jobs,
        "events": events,
        "copied": events,
        "observed": events,
        "brought": events,
        "silver": jobs,
        "audited": [events] * 3,
        "clean": [True] * 3,
        "compared": True,
        "kept": 0,
    }
