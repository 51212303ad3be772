"""One task's part of a write: its batches of rows into the store, and word of it for the driver."""

from collections.abc import Iterator
from contextlib import AsyncExitStack

import msgspec
import pyarrow as pa

from penstock.client.persist import Persistence
from penstock.core.errors import OptionError
from penstock.spark.options import SourceOptions
from penstock.spark.sink.columns import Columns
from penstock.spark.sink.enqueueing import Enqueueing
from penstock.spark.sink.flight import Flight
from penstock.spark.sink.moving import Moving
from penstock.spark.sink.pace import Pace
from penstock.spark.sink.place import Place
from penstock.spark.sink.quarantine import Quarantine
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.tally import Tally, Written
from penstock.spark.stores import opened


class Plan(msgspec.Struct, frozen=True):
    """What a write is to do, the same for all its tasks. `made_id` is its id where nothing else gives one."""

    options: SourceOptions
    columns: Columns
    scope: str
    made_id: str


async def write_partition(
    plan: Plan, place: Place, batches: Iterator[pa.RecordBatch], *, slots: int | None = 1
) -> Written:
    """Write the rows of one partition; `slots` is how many tasks may run at once and share the rate."""
    options, tally = plan.options, Tally()
    quarantine = Quarantine(options, place, plan.scope)
    pace = Pace(_share(options.max_per_second, slots))
    may_be_new = options.declare and options.operation == "enqueue" and not options.dry_run
    async with AsyncExitStack() as stack:
        # A store that is away when the task begins is waited for as well.
        store = await Persistence(patience=options.patience).call(
            lambda: stack.enter_async_context(
                opened(options, may_be_new=may_be_new, may_migrate=not options.dry_run)
            )
        )
        desk: Enqueueing | Moving
        if options.operation == "enqueue":
            rows = Rows(plan.columns, options, place.write_id)
            desk = Enqueueing(store, options, rows, pace=pace, tally=tally, quarantine=quarantine)
        else:
            desk = Moving(store, options, plan.columns, pace=pace, tally=tally, quarantine=quarantine)
        async with Flight() as flight:
            for batch in batches:
                tally.rows += batch.num_rows
                await desk.take(batch, flight)
    return Written(place, tally, quarantine.close())


def _share(rate: float | None, slots: int | None) -> float | None:
    if rate is None:
        return None
    if slots is None:
        wanted = "it where spark.executor.instances or spark.cores.max says how many tasks share it"
        raise OptionError("maxPerSecond", rate, wanted)
    return rate / slots
