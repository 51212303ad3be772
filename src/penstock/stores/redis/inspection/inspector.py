"""The store's fsck: records and indexes have to tell the same story."""

from collections.abc import Mapping
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.limits import Mode
from penstock.stores.redis.codec.lanes import Lane, read_declaration, read_lanes
from penstock.stores.redis.codec.runs import read_runs
from penstock.stores.redis.inspection.close_look import CloseLook
from penstock.stores.redis.inspection.key_pages import PageReader
from penstock.stores.redis.inspection.running_sums import RunningSums, Sums
from penstock.stores.redis.inspection.sums import KeyCounts, SumTaker
from penstock.stores.redis.keys import QueueKeys, keys_of
from penstock.stores.redis.server import Server
from penstock.stores.values import Finding

JOBS_AT_ONCE: Final = 20_000
"""Jobs that a close look holds in memory."""
MOST_FINDINGS: Final = 1_000
"""Findings after which no further jobs are looked at."""


class Inspector:
    """Compares what stands in a queue's records with what stands in its indexes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pages = PageReader(server)

    async def check(self, queue: QueueRef) -> list[Finding]:
        """What should not be. A queue in use changes during a look: only what two close looks saw counts.

        Sums over all jobs tell first which jobs are worth a close look, so that few are in memory at a time.
        """
        keys = keys_of(queue)
        lanes = await self._lanes(keys)
        running = RunningSums(int(await self._server.command("HLEN", keys.records)))
        counts = await SumTaker(self._server, self._pages).take(keys, lanes, running)
        found: dict[Finding, None] = {}
        if await self._of_queue(keys, lanes, counts):
            found.update(await self._confirmed(keys, running, frozenset()))
        for sums in running.suspects(JOBS_AT_ONCE):
            if len(found) < MOST_FINDINGS:
                found.update(await self._confirmed(keys, running, sums))
        return list(found)

    async def _confirmed(self, keys: QueueKeys, running: RunningSums, sums: Sums) -> dict[Finding, None]:
        first = await self._look(keys, running, sums)
        again = set(await self._look(keys, running, sums)) if first else ()
        return dict.fromkeys(finding for finding in first if finding in again)

    async def _look(self, keys: QueueKeys, running: RunningSums, sums: Sums) -> list[Finding]:
        lanes = await self._lanes(keys)
        look = CloseLook(self._pages, keys, lanes, lambda job: running.is_among(job, sums))
        found, counts = await look.take()
        return [*found, *await self._of_queue(keys, lanes, counts)]

    async def _of_queue(self, keys: QueueKeys, lanes: Mapping[str, Lane], counts: KeyCounts) -> list[Finding]:
        return [*await self._keys(keys, lanes, counts), *await self._events(keys)]

    async def _lanes(self, keys: QueueKeys) -> dict[str, Lane]:
        declared = await self._server.command("HGET", keys.meta, "declared")
        if declared is None or not read_declaration(declared).mode.has_keys:
            return {}
        found: dict[str, Lane] = {}
        async for page in self._pages.hash(keys.lanes):
            found.update(read_lanes(page))
        return found

    async def _keys(self, keys: QueueKeys, lanes: Mapping[str, Lane], counts: KeyCounts) -> list[Finding]:
        """Counts of keys, and that exactly those are open which could be served."""
        out: list[Finding] = []
        if not lanes:
            return out
        declared = read_declaration(await self._server.command("HGET", keys.meta, "declared"))
        waiting, running = counts.waiting, counts.running
        for key, lane in lanes.items():
            if (lane.waiting, lane.running) != (waiting[key], running[key]):
                out.append(
                    Finding(
                        f"key {key!r} has {waiting[key]} waiting and {running[key]} running jobs, "
                        f"and {lane.waiting} and {lane.running} are counted"
                    )
                )
            limit = (lane.limit if declared.mode is Mode.DYNAMIC else 0) or declared.key_limit
            could_run = lane.waiting > 0 and lane.running < limit
            if could_run != (lane.turn is not False):
                out.append(Finding(f"key {key!r} {'is not' if could_run else 'is'} in line to be served"))
        for index, is_held in ((keys.ready, False), (keys.held, True)):
            rows = {
                member.decode(errors="backslashreplace")
                for member in await self._server.command("ZRANGE", index, 0, -1)
            }
            wanted = {
                f"{lane.joined:016d} {key}"
                for key, lane in lanes.items()
                if lane.turn is not False and (lane.held_until is not False) == is_held
            }
            out += [Finding(f"a turn without its key: {row!r}") for row in sorted(rows - wanted)]
            out += [Finding(f"a key without its turn: {row!r}") for row in sorted(wanted - rows)]
        out += [
            Finding(f"key {key!r} has jobs and no lane")
            for key in sorted((waiting.keys() | running.keys()) - lanes.keys())
        ]
        return out

    async def _events(self, keys: QueueKeys) -> list[Finding]:
        last, seq = await self._server.commands(
            [("XREVRANGE", keys.events, "+", "-", "COUNT", 1), ("HGET", keys.meta, "seq")], at_once=True
        )
        counted = int(seq or 0)
        newest = read_runs(last, counted)[0].last if last else None
        if newest is not None and newest != counted:
            return [Finding(f"the newest event is {newest}, the queue counted {counted}")]
        return []
