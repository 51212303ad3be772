"""The streaming reader of `events`: offsets that can be read again, and a bound on each batch."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.core.errors import PenstockError
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.spark.events.lag import report_of
from penstock.spark.events.links import Link
from penstock.spark.events.offsets import Offset, read_offset
from penstock.spark.events.planning import heads, initial_offset, known_queues, next_offset
from penstock.spark.events.ranges import EventRange, backlogs, split
from penstock.spark.events.readers import UNREGISTERED, Registration, made_up_name
from penstock.spark.events.reading import read
from penstock.spark.options import SourceOptions
from penstock.stores.protocol import Store


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Events of the queues that are asked for, as they come; where none is named, of new queues too."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._link = Link(options)
        self._targets: Mapping[QueueRef, str] | None = None
        self._registration: Registration | None = None
        self._made_up = made_up_name()
        self._reached: Offset | None = None
        self._turn = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Where a new query begins; a checkpoint wins over it."""

        async def find(store: Store) -> Offset:
            queues = await known_queues(store, self._options, Offset())
            return await initial_offset(store, self._options, queues)

        found = self._link.call(find)
        return msgspec.structs.replace(found, reader=self._name(None)).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """What `maxEventsPerTrigger` says."""
        most = self._options.max_events_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Note how far the queues are now: the query reads up to there, and ends."""

        async def find(store: Store) -> dict[QueueRef, str]:
            return await heads(store, await known_queues(store, self._options, Offset()))

        self._targets = self._link.call(find)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """As far as the next batch goes: `start` when there is nothing to read."""
        before = read_offset("checkpoint", start)
        self._turn += 1

        async def find(store: Store) -> Offset:
            return await next_offset(
                store,
                self._options,
                await known_queues(store, self._options, before),
                before,
                limit=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
                targets=self._targets,
                turn=self._turn,
            )

        after = self._link.call(find)
        self._reached = after
        name = self._name(before.reader)
        # All up to the start is processed. Spark itself says so a batch later, and never of the last one.
        # A query that has not committed a batch yet may be refused: it must not hold back retention.
        begun = {queue: place.start for queue, place in after.queues.items() if queue not in before.queues}
        done = {queue: place.cursor for queue, place in before.queues.items()}
        kept = self._keep(name, begun | done) if _has_committed(before) else []
        if after == before:
            # A query that ends when all is read may end this process now.
            wait(kept)
            return start
        return msgspec.structs.replace(after, reader=name).to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """The newest event of each queue, and how far the batch that was planned last is behind it.

        Spark shows it as `latestOffset` in the progress of the query. Nothing depends on it, so a store that
        does not answer is left to the next batch.
        """
        reached = self._reached
        if reached is None:
            return None
        try:
            return self._link.call(lambda store: report_of(store, self._options, reached))
        except PenstockError:
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Stretches of the queues' logs that make up the batch."""
        before, after = read_offset("checkpoint", start), read_offset("checkpoint", end)

        async def plan(store: Store) -> list[EventRange]:
            await known_queues(store, self._options, after)
            return await split(
                store,
                backlogs(before, after),
                wanted=self._options.min_partitions,
                allow_loss=not self._options.fail_on_data_loss,
            )

        return list(self._link.call(plan))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one of them."""
        return read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Let go of what was processed."""
        offset = read_offset("checkpoint", end)
        places = {queue: place.cursor for queue, place in offset.queues.items()}
        self._keep(self._name(offset.reader), places)

    def stop(self) -> None:
        """Close the store."""
        self._link.close()
        self._registration = None

    def _name(self, known: str | None) -> str | None:
        """Who reads: as was said, else as the checkpoint knows, else by a name that it will know."""
        given = self._options.reader_name
        if given is None:
            return known or self._made_up
        return None if given == UNREGISTERED else check_name("readerName", given)

    def _keep(self, name: str | None, places: Mapping[QueueRef, str]) -> "list[Future[None]]":
        """Tell the store how far all is read; it knows when the future is done, if there is one."""
        if name is None:
            return []
        if self._registration is None or self._registration.name != name:
            self._registration = Registration(name)
        registration = self._registration
        return [self._link.send(lambda store: registration.keep(store, places))]


def _has_committed(offset: Offset) -> bool:
    """True where a batch ended in some queue: where a query begins, none has."""
    return any(place.start for place in offset.queues.values())
