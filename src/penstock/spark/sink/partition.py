"""One task's part of a write: its batches of rows into the store, and word of it for the driver."""

from collections.abc import Iterator
from contextlib import AsyncExitStack

import msgspec
import pyarrow as pa

from penstock.client.retrying import RetryingCaller
from penstock.core.errors import OptionError
from penstock.spark.options import SourceOptions
from penstock.spark.sink.columns import Columns
from penstock.spark.sink.enqueueing import Enqueueing
from penstock.spark.sink.in_flight import InFlight
from penstock.spark.sink.moving import JobMover
from penstock.spark.sink.quarantine import Quarantine
from penstock.spark.sink.rate_limiter import RateLimiter
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.write_scope import WriteScope
from penstock.spark.sink.write_stats import WriteStats, Written
from penstock.spark.stores import opened


class Plan(msgspec.Struct, frozen=True):
    """What a write is to do, the same for all its tasks. `made_id` is its id where nothing else gives one."""

    options: SourceOptions
    columns: Columns
    scope: str
    made_id: str


async def write_partition(
    plan: Plan, place: WriteScope, batches: Iterator[pa.RecordBatch], *, slots: int | None = 1
) -> Written:
    """Write the rows of one partition; `slots` is how many tasks may run at once and share the rate."""
    options, stats = plan.options, WriteStats()
    quarantine = Quarantine(options, place, plan.scope)
    pace = RateLimiter(_share(options.max_per_second, slots))
    may_be_new = options.declare and options.operation == "enqueue" and not options.dry_run
    async with AsyncExitStack() as stack:
        # A store that is away when the task begins is waited for as well.
        store = await RetryingCaller(retry_timeout=options.retry_timeout).call(
            lambda: stack.enter_async_context(
                opened(options, may_be_new=may_be_new, may_migrate=not options.dry_run)
            )
        )
        catalog: Enqueueing | JobMover
        if options.operation == "enqueue":
            rows = Rows(plan.columns, options, place.write_id)
            catalog = Enqueueing(store, options, rows, pace=pace, stats=stats, quarantine=quarantine)
        else:
            catalog = JobMover(store, options, plan.columns, pace=pace, stats=stats, quarantine=quarantine)
        async with InFlight() as flight:
            for batch in batches:
                stats.rows += batch.num_rows
                await catalog.take(batch, flight)
    return Written(place, stats, quarantine.close())


def _share(rate: float | None, slots: int | None) -> float | None:
    if rate is None:
        return None
    if slots is None:
        wanted = "it where spark.executor.instances or spark.cores.max says how many tasks share it"
        raise OptionError("maxPerSecond", rate, wanted)
    return rate / slots
