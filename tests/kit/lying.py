"""Bloom filters that say what they are told to, whatever they remember."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.bloom.rotating import BloomSize, RotatingBloom
from penstock.client.known_keys import KnownKeys
from penstock.client.retrying import RetryingCaller
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.protocol import Store
from penstock.stores.values import Spawn

LIES: Final = ("always", "never", "wrong")
_SIZE: Final = BloomSize(1_000, 0.01, 3600.0)


class LyingBloom(RotatingBloom):
    """Says "maybe" of everything, of nothing, or of just what was not added."""

    def __init__(self, lie: str) -> None:
        super().__init__(_SIZE)
        self._lie = lie

    def maybe(self, items: Sequence[str]) -> list[bool]:
        """The lie."""
        if self._lie == "wrong":
            return [not is_there for is_there in super().maybe(items)]
        return [self._lie == "always"] * len(items)


class Filtering:
    """A store whose enqueue goes by a filter of idempotency keys; all else is the store's own."""

    def __init__(self, store: Store, keys: RotatingBloom) -> None:
        self._store = store
        self._known = KnownKeys(store, keys, RetryingCaller())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Through the filter, as a client does it; a flow goes straight to the store."""
        if spawns or not jobs:
            return await self._store.moves.enqueue(queue, jobs, spawns, mode)
        return await self._known.enqueue(queue, jobs, mode)
