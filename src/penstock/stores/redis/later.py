"""Parts of the contract that this store does not have yet: asked for, they say so and change nothing."""

from collections.abc import Sequence
from typing import NoReturn

from penstock.core.errors import StoreError
from penstock.core.flows import Child, ChildEnding
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration, KeyRule
from penstock.core.moves import Beat
from penstock.core.outcomes import Applied, Refused
from penstock.stores.protocol import (
    RELAY_LIMIT,
    SCHEDULE_LIMIT,
    Adoption,
    Firing,
    KeyInfo,
    QueueInfo,
    Relay,
    Spawn,
    StoredSchedule,
)
from penstock.stores.redis.log import StreamReaders


class Later(StreamReaders):
    """Limits, flows and schedules, for now on SQLite and in memory only."""

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        _refuse("modes and limits")

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        _refuse("limits per key")

    async def keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        return []

    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        _refuse("flows")

    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        _refuse("flows")

    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        _refuse("flows")

    async def children(self, queue: QueueRef, job: str) -> list[Child]:
        return []

    async def relays(self, queue: QueueRef, limit: int = RELAY_LIMIT) -> list[Relay]:
        return []

    async def relayed(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        """There are no entries to forget."""

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        _refuse("schedules")

    async def remove_schedule(self, queue: QueueRef, name: str) -> bool:
        return False

    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool:
        return False

    async def schedules(self, tenant: str) -> list[StoredSchedule]:
        return []

    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        return []

    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        return False


def check_plain(jobs: Sequence[NewJob], spawns: Sequence[Spawn]) -> None:
    """StoreError for jobs that need what this store does not have yet."""
    if spawns or any(new.awaits or new.parents for new in jobs):
        _refuse("flows")
    if any(new.unique is not None for new in jobs):
        _refuse("unique jobs")


def _refuse(what: str) -> NoReturn:
    raise StoreError(f"{what} are not available on Redis yet; SQLite has them")
