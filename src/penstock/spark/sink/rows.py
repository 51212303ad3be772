"""From a batch of rows to jobs, column by column, and the rows that cannot be any."""

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from penstock.core.errors import InvalidError, OptionError
from penstock.core.headers import check_headers
from penstock.core.ids import IdMaker
from penstock.core.job import NewJob, QueueRef
from penstock.core.names import check_key, check_name
from penstock.spark.options import SourceOptions
from penstock.spark.sink.columns import Columns
from penstock.spark.sink.job_options import Policies, delays_of, flaw_of, instants_of
from penstock.spark.sink.keys import KeyMaker, nonce_of
from penstock.spark.sink.payloads import Payloads
from penstock.spark.sink.queue_refs import QueueRefs
from penstock.spark.sink.values import Flaw, Flaws, values_of, with_one_zero
from penstock.stores.values import QueueInfo


class Rows:
    """Reads batches of one schema, as part of one write."""

    def __init__(self, columns: Columns, options: SourceOptions, write_id: str) -> None:
        self.columns = columns
        self.write_id = write_id
        self.needs_key = options.duplicates == "refuse"
        self.keys = KeyMaker(write_id)
        self.payloads = Payloads(columns)
        self.policies = Policies(columns.options)
        self.ids = IdMaker(lambda: time.time_ns() // 1_000_000, secrets.randbits)
        self.refs = QueueRefs(options)
        self._task = options.task
        self._tasks: dict[str | None, str | Flaw] = {}

    def read(self, batch: pa.RecordBatch) -> "RowBatch":
        """The batch, with the queues that its rows are for."""
        return RowBatch(self, batch)

    def task(self, said: str | None) -> str | Flaw:
        """The task of a row that says so, or that of the options."""
        found = self._tasks.get(said)
        if found is None:
            try:
                found = check_name("_task", self._task if said is None else said)
            except InvalidError as error:
                found = flaw_of(error)
            self._tasks[said] = found
        return found


class RowBatch:
    """The rows of one batch, and their `flaws`, which grow while they are looked at."""

    def __init__(self, rows: Rows, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.flaws: Flaws = {}
        self._rows = rows
        self._values: dict[int, list[Any]] = {}
        self.refs = self._refs()
        """The queue of each row."""

    def jobs(self, queues: Mapping[QueueRef, QueueInfo]) -> Iterator[tuple[int, QueueRef, NewJob]]:
        """The place, the queue and the job of each row for one of these queues that is not bad."""
        rows, flaws = self._rows, self.flaws
        payloads = rows.payloads.of(self.batch, self._column, flaws)
        tasks = self._tasks()
        policies = rows.policies.of(self.batch.num_rows, self._column, flaws)
        waits, keys, chosen = self._waits(), self._option("key"), self._option("id")
        make_id, make_nonce = rows.ids.make, rows.ids.nonce
        idempotency_keys, headers = self._idempotency_keys(), self._option("headers")
        last, info = None, None
        for at, ref in enumerate(self.refs):
            # Most rows are for the queue of the row before.
            if ref is not last:
                last, info = ref, queues.get(ref)
            if at in flaws or info is None:
                continue
            policy = policies[at]
            delay_ms, run_at = waits[at]
            try:
                if policy.says_priority:
                    policy.check_mode(info.mode, ref.name)
                if keys[at] is not None:
                    check_key("_key", keys[at])
                new = NewJob(
                    id=make_id(info.number),
                    nonce=make_nonce(),
                    task=tasks[at],
                    payload=payloads[at],
                    priority=policy.priority,
                    delay_ms=delay_ms,
                    run_at=run_at,
                    idempotency_key=idempotency_keys[at],
                    key=keys[at],
                    options=policy.options,
                    headers=None if headers[at] is None else check_headers("_headers", headers[at]),
                )
                if chosen[at] is not None:
                    new = self._named(new, check_name("_id", chosen[at]))
            except InvalidError as error:
                flaws[at] = flaw_of(error)
                continue
            yield at, ref, new

    def _refs(self) -> list[QueueRef]:
        tenants, queues = self._option("tenant"), self._option("queue")
        if self._rows.columns.options.keys() & {"tenant", "queue"}:
            return self._rows.refs.of(tenants, queues, self.flaws)
        # All rows are for the same queue.
        return self._rows.refs.of(tenants[:1], queues[:1], self.flaws) * len(queues)

    def _tasks(self) -> list[str]:
        rows = self._rows
        if "task" not in rows.columns.options:
            return [self._sound(0, rows.task(None), "")] * self.batch.num_rows
        return [self._sound(at, rows.task(said), "") for at, said in enumerate(self._option("task"))]

    def _waits(self) -> list[tuple[int, int | None]]:
        """Delays and times, of which a row may have one."""
        delays = delays_of(self._option("delay"), self.flaws)
        place = self._rows.columns.options.get("run_at")
        if place is None:
            return [(delay, None) for delay in delays]
        instants = instants_of(self.batch.column(place), self.flaws)
        for at, (delay, instant) in enumerate(zip(delays, instants, strict=True)):
            if delay and instant is not None:
                self._note(at, OptionError("_run_at", instant, "either _delay or _run_at, not both"))
        return list(zip(delays, instants, strict=True))

    def _idempotency_keys(self) -> list[str | None]:
        """The key that each row has, or is given; a row without one is bad where it needs one."""
        rows, given = self._rows, self._option("idempotency_key")
        for at, key in enumerate(given):
            if key is not None:
                try:
                    check_key("_idempotency_key", key)
                except InvalidError as error:
                    self._note(at, error)
        if not rows.columns.keys:
            if rows.needs_key and None in given:
                for at in (at for at, key in enumerate(given) if key is None):
                    self._note(at, OptionError("_idempotency_key", None, "a key"))
            return given
        made: list[str | None] = []
        lists = [self._column(place) for place in rows.columns.keys]
        for at, (key, ref, values) in enumerate(zip(given, self.refs, zip(*lists, strict=True), strict=True)):
            if key is None and rows.needs_key and values.count(None) == len(values):
                self._note(at, OptionError("keyColumns", None, "a value in one of them"))
            made.append(rows.keys.make(ref, values) if key is None else key)
        return made

    def _named(self, new: NewJob, job: str) -> NewJob:
        key = new.idempotency_key or self._rows.write_id
        return replace(new, id=job, nonce=nonce_of(key, job, new.payload))

    def _column(self, place: int) -> list[Any]:
        found = self._values.get(place)
        if found is None:
            name = self._rows.columns.names[place]
            column = self.batch.column(place)
            found = values_of(name, column, self.flaws)
            if place in self._rows.columns.keys:
                found = with_one_zero(found, column)
            self._values[place] = found
        return found

    def _option(self, name: str) -> list[Any]:
        place = self._rows.columns.options.get(name)
        return [None] * self.batch.num_rows if place is None else self._column(place)

    def _sound(self, at: int, found: Any, otherwise: Any) -> Any:
        if isinstance(found, Flaw):
            self.flaws.setdefault(at, found)
            return otherwise
        return found

    def _note(self, at: int, error: InvalidError) -> None:
        self.flaws.setdefault(at, Flaw(error.field, str(error)))
