"""The batch reader of `events`: all that is there when the query is planned, or between two offsets."""

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.core.errors import OptionError
from penstock.spark.events.links import Link
from penstock.spark.events.offsets import Offset, QueuePosition, full_name
from penstock.spark.events.planning import ending_places, initial_offset, known_queues, next_offset
from penstock.spark.events.ranges import EventRange, backlogs, split
from penstock.spark.events.readers import UNREGISTERED, Registration
from penstock.spark.events.reading import read
from penstock.spark.options import SourceOptions
from penstock.stores.protocol import Store


class EventsReader(DataSourceReader):
    """Events of the queues that are asked for."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Stretches of the queues' logs."""
        with closing(Link(self._options)) as link:
            return list(link.call(self._plan))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one of them."""
        return read(self._options, partition)

    async def _plan(self, store: Store) -> list[EventRange]:
        options = self._options
        queues = await known_queues(store, options, Offset())
        start = await initial_offset(store, options, queues)
        targets = await ending_places(store, options, queues)
        for queue, cursor in targets.items():
            place = start.queues.get(queue)
            if (
                options.ending_offsets
                and place is not None
                and place.at.place > QueuePosition(cursor).at.place
            ):
                wanted = f"an end of {full_name(queue)} that is not before its start, {place.cursor}"
                raise OptionError("endingOffsets", cursor, wanted)
        end = await next_offset(store, options, queues, start, limit=None, targets=targets)
        found = backlogs(start, end)
        allow_loss = not options.fail_on_data_loss
        ranges = await split(store, found, wanted=options.min_partitions, allow_loss=allow_loss)
        if options.reader_name not in (None, UNREGISTERED):
            # What is being read is not trimmed meanwhile. A plan that was refused registers nobody.
            registration = Registration(options.reader_name)
            await registration.keep(store, {queue: backlog.kept for queue, backlog in found.items()})
        return ranges
