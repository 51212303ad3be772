"""Loaded by every Python that Spark starts for the tests: what workers need is there before they are forked.

Spark starts a worker for each step of a plan, and each of them would import all this by itself.
"""

import gc
import importlib
import os
import sys

if "pyspark.daemon" in sys.orig_argv:
    # A process that is to be forked may have no threads.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in (
        sys.orig_argv[-1],
        "penstock.spark.source",
        "penstock.spark.events.batch",
        "penstock.spark.events.stream",
        "penstock.spark.jobs.reader",
        "penstock.spark.sink.writers",
        "penstock.stores.postgres",
        "penstock.stores.redis",
        "penstock.stores.sqlite",
    ):
        importlib.import_module(name)
    # A worker collects garbage after its work, and need not look through all that is loaded here.
    gc.freeze()
