"""Claims that stand: the next job of a queue is leased to a worker that waits, and sent to where it listens.

What gets lost on the way comes with the worker's next claim, which says what it received.
"""

import secrets
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.outcomes import Claims
from penstock.stores.redis import records

Claimant = tuple[QueueRef, str]
"""A queue, and the worker that claims from it."""


class Inbox:
    """Where the claims of one store stand."""

    def __init__(self) -> None:
        self.channel: Final = f"penstock:inbox:{secrets.token_hex(8)}"
        self._standing: dict[bytes, Claimant] = {}
        self._came: dict[Claimant, tuple[bytes, Claims]] = {}
        self._received: dict[Claimant, bytes] = {}

    def heard(self, message: bytes) -> QueueRef | None:
        """Take in what was sent; the queue, if its worker waits for it."""
        number, job, length, rest = message.split(b" ", 3)
        claimant = self._standing.pop(number, None)
        if claimant is None:
            return None
        end = int(length)
        self._came[claimant] = number, records.handed(job, rest[:end], rest[end:])
        return claimant[0]

    def take(self, claimant: Claimant) -> Claims | None:
        """What came since the last claim."""
        came = self._came.pop(claimant, None)
        if came is None:
            return None
        self._received[claimant], claims = came
        return claims

    def received(self, claimant: Claimant) -> bytes:
        """The number of the last claim whose job was taken, until it is told."""
        return self._received.get(claimant, b"")

    def told(self, claimant: Claimant) -> None:
        """The store knows what was received."""
        self._received.pop(claimant, None)

    def stand(self, claimant: Claimant) -> bytes:
        """A number for a claim that may stand. Its job may come before its answer does."""
        number = secrets.token_hex(8).encode()
        self._standing[number] = claimant
        return number

    def leave(self, claimant: Claimant) -> None:
        """Nothing stands any more: what is still on its way comes with the next claim."""
        self._came.pop(claimant, None)
        self._standing = {number: each for number, each in self._standing.items() if each != claimant}
