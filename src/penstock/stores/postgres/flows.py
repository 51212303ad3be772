"""Jobs that wait for other jobs; still to come on this store."""

from collections.abc import Sequence

from penstock.core.flows import Child, ChildEnding
from penstock.core.job import QueueRef
from penstock.core.moves import Beat
from penstock.core.outcomes import Applied, Refused
from penstock.stores.postgres.later import refuse
from penstock.stores.postgres.room import Room
from penstock.stores.protocol import RELAY_LIMIT, Adoption, Relay, Spawn


class PostgresFlows(Room):
    """Parents, children, and what is carried between queues."""

    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        """Tell parents of their children's endings."""
        refuse("flows")

    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        """Give blocked parents more children."""
        refuse("flows")

    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        """Let a running job add children under its lease."""
        refuse("flows")

    async def children(self, queue: QueueRef, job: str) -> list[Child]:
        """The children of a job."""
        return []

    async def relays(self, queue: QueueRef, limit: int = RELAY_LIMIT) -> list[Relay]:
        """What waits to be carried over."""
        return []

    async def relayed(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        """There are no entries to forget."""
