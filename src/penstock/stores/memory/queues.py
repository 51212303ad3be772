"""The queues of the memory store: their declarations, pauses and key rules."""

from msgspec.structs import replace

from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule, agreed, check_declaration, check_key_rule
from penstock.core.states import LIVE, State
from penstock.stores.memory.backend import Backend
from penstock.stores.values import KeyInfo, Pause, QueueContents, QueueInfo, Topic


class MemoryQueues:
    """Opens, lists, declares, pauses and deletes queues."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        with self._backend.lock:
            return self._backend.info_of(self._backend.ledger(queue))

    async def find_queue(self, queue: QueueRef) -> QueueInfo | None:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            return None if ledger is None else self._backend.info_of(ledger)

    async def list_queues(self, tenant: str) -> list[QueueInfo]:
        with self._backend.lock:
            infos = [
                self._backend.info_of(ledger)
                for ref, ledger in self._backend.ledgers.items()
                if ref.tenant == tenant
            ]
            return sorted(infos, key=lambda info: info.queue.name)

    async def list_tenants(self) -> list[str]:
        with self._backend.lock:
            return sorted({ref.tenant for ref in self._backend.ledgers})

    async def delete_queue(self, queue: QueueRef) -> QueueContents | None:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            if ledger is None:
                return None
            jobs = {state: count for state, count in ledger.counts.items() if count}
            contents = QueueContents(jobs, len(ledger.schedules), len(ledger.relays))
            if contents.is_empty:
                del self._backend.ledgers[queue]
            return contents

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        with self._backend.lock:
            ledger = self._backend.ledger(queue)
            is_live = any(job.state in LIVE for job in ledger.jobs.values())
            wanted = agreed(ledger.info.declaration, check_declaration(declaration), is_live=is_live)
            if wanted == ledger.info.declaration:
                return self._backend.info_of(ledger)
            ledger.info = replace(ledger.info, declaration=wanted)
            rate = wanted.rate
            ledger.arrival_us = (
                0 if rate is None else rate.owed_at_most(ledger.arrival_us, self._backend.now_us())
            )
            ledger.lanes.owe_at_most(wanted, self._backend.now_us())
            ledger.touched += list(ledger.lanes.known())
            self._backend.refresh(ledger)
            ledger.lanes.hold_again(wanted, self._backend.now_us())
        self._backend.notifier.notify(queue, Topic.READY)
        return self._backend.info_of(ledger)

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        with self._backend.lock:
            ledger = self._backend.ledger(queue)
            before = ledger.lanes.rule(key)
            after = KeyRule() if rule is None else check_key_rule(ledger.declared.mode, rule).over(before)
            ledger.lanes.rules.pop(key, None)
            if not after.is_plain:
                ledger.lanes.rules[key] = after
            ledger.touched.append(key)
            self._backend.refresh(ledger)
        self._backend.notifier.notify(queue, Topic.READY)

    async def list_keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            if ledger is None or not ledger.declared.mode.has_keys:
                return []
            waiting: dict[str, int] = {}
            for job in ledger.jobs.values():
                if job.state is State.PENDING and job.key is not None:
                    waiting[job.key] = waiting.get(job.key, 0) + 1
            lanes = ledger.lanes
            infos = [
                KeyInfo(
                    key,
                    waiting.get(key, 0),
                    lanes.active(key),
                    lanes.limit(key, ledger.declared),
                    lanes.rule(key).weight or 1,
                    lanes.lanes[key].held_until if key in lanes.lanes else None,
                )
                for key in lanes.known()
            ]
            used = [info for info in infos if info.waiting or info.active or info.key in lanes.rules]
            return used[:limit]

    async def pause_queue(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        with self._backend.lock:
            ledger, now = self._backend.ledger(queue), self._backend.now()
            if pause is not None:
                until = None if for_ms is None else now + for_ms
                pause = Pause(now, pause.reason, pause.by, until)
            ledger.info = replace(ledger.info, pause=pause)
        self._backend.notifier.notify(queue, Topic.READY)
