"""Every metric by its name: its kind, its labels and what it says."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.metrics.latency import Histogram

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text that Prometheus reads."""
OTHER: Final = "other"
"""The label of everything beyond the bounds on tenants, queues and tasks."""


class Kind(StrEnum):
    """How values of a metric relate to those before."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """One metric. A counter's name ends in `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


class Sample(NamedTuple):
    """A value of a metric under its labels, in their order."""

    family: Family
    labels: tuple[str, ...]
    value: "float | Histogram"


_QUEUE: Final = ("tenant", "queue")
_TASK: Final = ("tenant", "queue", "task")
_CALL: Final = ("part", "call")

EXECUTIONS: Final = Family(
    "penstock_executions_total",
    Kind.COUNTER,
    (*_TASK, "outcome"),
    "Deliveries that this process settled, by outcome; `lost` is one whose lease was gone",
)
WAIT: Final = Family(
    "penstock_wait_seconds",
    Kind.HISTOGRAM,
    _TASK,
    "Time from the enqueue of a job to its first claim, a delay that its caller asked for included",
)
RUN: Final = Family("penstock_run_seconds", Kind.HISTOGRAM, _TASK, "Time that handlers ran")
WAIT_RECENT: Final = Family(
    "penstock_wait_recent_seconds",
    Kind.GAUGE,
    (*_QUEUE, "quantile"),
    "Percentiles of the newest 1,000 waits of a queue in this process",
)
RUN_RECENT: Final = Family(
    "penstock_run_recent_seconds",
    Kind.GAUGE,
    (*_QUEUE, "quantile"),
    "Percentiles of the newest 1,000 run times of a queue in this process",
)
RUNNING: Final = Family(
    "penstock_running_jobs", Kind.GAUGE, _QUEUE, "Jobs whose handlers run in this process now"
)
THROUGHPUT: Final = Family(
    "penstock_throughput",
    Kind.GAUGE,
    _QUEUE,
    "Jobs per second that this process completed between the last two samples",
)
MOVES: Final = Family(
    "penstock_moves_total",
    Kind.COUNTER,
    (*_QUEUE, "move", "result"),
    "Moves of jobs that this process asked the store for, by what came of them",
)
EXPIRED: Final = Family(
    "penstock_leases_expired_total",
    Kind.COUNTER,
    (*_QUEUE, "state"),
    "Expired leases that this process recovered, by the state of the job afterwards",
)
CLAIM_JOBS: Final = Family("penstock_claim_jobs", Kind.HISTOGRAM, _QUEUE, "Jobs that one claim brought")
STORE_CALL: Final = Family(
    "penstock_store_call_seconds", Kind.HISTOGRAM, _CALL, "Time that calls of the store took, failed ones too"
)
STORE_ERRORS: Final = Family(
    "penstock_store_errors_total", Kind.COUNTER, _CALL, "Calls of the store that raised an error"
)
LOOP_LAG: Final = Family(
    "penstock_event_loop_lag_seconds",
    Kind.GAUGE,
    (),
    "The longest time for which the event loop was held up since the last sample",
)
JOBS: Final = Family("penstock_jobs", Kind.GAUGE, (*_QUEUE, "state"), "Jobs of a queue by state")
OLDEST: Final = Family(
    "penstock_oldest_pending_seconds",
    Kind.GAUGE,
    _QUEUE,
    "Age of the oldest pending job, since its enqueue; 0 without one",
)
READER_LAG: Final = Family(
    "penstock_reader_lag_events",
    Kind.GAUGE,
    (*_QUEUE, "reader"),
    "Events that a registered reader has not read yet",
)
WORKERS: Final = Family("penstock_workers", Kind.GAUGE, _QUEUE, "Live workers that serve a queue")
SAMPLE_AGE: Final = Family(
    "penstock_sample_age_seconds",
    Kind.GAUGE,
    (),
    "Age of the values that were read from the store: jobs, ages, readers and workers",
)
SAMPLE_STALE: Final = Family(
    "penstock_sample_stale",
    Kind.GAUGE,
    (),
    "1 while the values read from the store are those of an earlier sample, else 0",
)
SAMPLE_FAILURES: Final = Family(
    "penstock_sample_failures_total", Kind.COUNTER, (), "Samples of the store that failed"
)
SAMPLE_LEFT_OUT: Final = Family(
    "penstock_sample_queues_left_out", Kind.GAUGE, (), "Queues beyond the bound, of which nothing is sampled"
)
INFO: Final = Family("penstock_build_info", Kind.GAUGE, ("version",), "The version of Penstock; always 1")

FAMILIES: Final[Mapping[str, Family]] = {
    each.name: each
    for each in (
        EXECUTIONS,
        WAIT,
        RUN,
        WAIT_RECENT,
        RUN_RECENT,
        RUNNING,
        THROUGHPUT,
        MOVES,
        EXPIRED,
        CLAIM_JOBS,
        STORE_CALL,
        STORE_ERRORS,
        LOOP_LAG,
        JOBS,
        OLDEST,
        READER_LAG,
        WORKERS,
        SAMPLE_AGE,
        SAMPLE_STALE,
        SAMPLE_FAILURES,
        SAMPLE_LEFT_OUT,
        INFO,
    )
}
