"""The audit of a store that is at work, so that what moves meanwhile is no false alarm.

Three looks, one after the other: how far the log goes; the jobs; how far the log goes now. A job without an
event between the first look and the last was the same all the time: what the log leaves it in is what the
store has to have. The others are not compared; the next audit finds them at rest.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.core.errors import UnknownQueueError
from penstock.core.history.rules import Declared
from penstock.core.job import QueueRef
from penstock.core.limits import KeyRule, Mode
from penstock.spark.audit.judge import audit
from penstock.spark.audit.keep import kept
from penstock.spark.audit.verdict import Verdict
from penstock.spark.options import SourceOptions, read_options
from penstock.spark.stores import opened, queues_of, run
from penstock.stores.protocol import HasHoldups, Store
from penstock.stores.values import QueueInfo

_SETTLE_TIMEOUT_S: Final = 10.0
"""How long transactions are waited for that began before the jobs were read."""
_PAUSE_S: Final = 0.05
_KEYS: Final = 100_000
_MOVED: Final = "SELECT tenant, queue, explode(coalesce(jobs, array(job))) AS job FROM {events}"


class Look(msgspec.Struct, frozen=True):
    """A store's queues, and how far their logs go."""

    queues: Sequence[QueueInfo]
    heads: Mapping[QueueRef, str]
    starts: Mapping[QueueRef, int]
    rules: Mapping[QueueRef, Mapping[str, KeyRule]]

    @property
    def ends(self) -> str:
        """The heads as the data source takes them."""
        return _offsets(self.heads)

    @property
    def beginnings(self) -> str:
        """Where the logs began: what is trimmed since then is missed by the reader, and said."""
        return _offsets({queue: first - 1 for queue, first in self.starts.items()})

    def declared(self, since: int) -> dict[QueueRef, list[Declared]]:
        """What is declared now, as if it had been at that time."""
        return {
            info.queue: [Declared(since, info.declaration, dict(self.rules[info.queue]))]
            for info in self.queues
            if info.declaration is not None
        }


def audit_store(
    spark: SparkSession,
    url: str,
    *,
    tenant: str,
    queues: Sequence[str] = (),
    limits_since: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Audit the whole log of a store, and hold it against its jobs.

    With `limits_since`, claims after that time (Unix milliseconds) are held to the limits that are declared
    now: a store does not tell what was declared before. `say` is told what is going on.
    """
    options = read_options(
        {"url": url, "table": "events", "tenant": tenant} | ({"queues": ",".join(queues)} if queues else {})
    )
    look = run(_look(options))
    if not look.queues:
        raise UnknownQueueError(f"tenant {tenant!r} has no queue to audit")
    names = ",".join(info.queue.name for info in look.queues)

    def read(table: str, **more: str) -> DataFrame:
        asked = {"url": url, "tenant": tenant, "queues": names, "table": table, **more}
        return spark.read.format("penstock").options(**asked).load()

    def log(start: str, end: str) -> DataFrame:
        # What is missing is a row, and so a breach beside all others.
        return read("events", startingOffsets=start, endingOffsets=end, failOnDataLoss="false")

    say("reading the jobs")
    jobs = kept(read("jobs", columns="tenant,queue,id,state"))
    say(f"reading the log, and comparing it with {jobs.count()} jobs")
    later = run(_look_again(options, look))
    old = log(look.beginnings, look.ends)
    new = log(look.ends, (later or look).ends)
    new = kept(new, on_disk=True)
    return audit(
        kept(old, on_disk=True).union(new),
        live=None if later is None else jobs,
        moved=spark.sql(_MOVED, events=new),
        starts=look.starts,
        declared=None if limits_since is None else look.declared(limits_since),
    )


def _offsets(places: Mapping[QueueRef, str | int]) -> str:
    named = {f"{queue.tenant}/{queue.name}": place for queue, place in places.items()}
    return msgspec.json.encode(named).decode()


async def _look(options: SourceOptions) -> Look:
    async with opened(options) as store:
        found = await queues_of(store, options)
        starts = {info.queue: (await store.events.event_range(info.queue))[0] for info in found}
        heads = {
            info.queue: await store.events.cursor_after(info.queue, starts[info.queue] - 1) for info in found
        }
        rules = {info.queue: await _rules(store, info) for info in found}
        return Look(found, heads, starts, rules)


async def _look_again(options: SourceOptions, before: Look) -> Look | None:
    """How far the same logs go now; None where that does not cover all that was done to the jobs."""
    async with opened(options) as store:
        if not await _has_settled(store):
            return None
        heads = {queue: await store.events.cursor_after(queue, head) for queue, head in before.heads.items()}
        return msgspec.structs.replace(before, heads=heads)


async def _has_settled(store: Store) -> bool:
    """True once nothing is held back that was done before now; False when that takes too long."""
    if not isinstance(store, HasHoldups):
        return True
    began = time.monotonic()
    while (passed := time.monotonic() - began) < _SETTLE_TIMEOUT_S:
        held = await store.holdup()
        if held is None or (held.age_ms is not None and held.age_ms < passed * 1000):
            return True
        await asyncio.sleep(_PAUSE_S)
    return False


async def _rules(store: Store, info: QueueInfo) -> dict[str, KeyRule]:
    if info.mode is not Mode.DYNAMIC:
        return {}
    return {key.key: KeyRule(limit=key.limit) for key in await store.queues.list_keys(info.queue, _KEYS)}
