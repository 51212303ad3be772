"""Events that somebody has damaged: told by their number."""

from typing import Final

import msgspec

from penstock.core.errors import StoreFormatError
from penstock.core.job import QueueRef

DAMAGED: Final = (ValueError, TypeError, msgspec.DecodeError)
"""What reading a record raises that no version of Penstock has written."""


def damaged(queue: QueueRef, seq: object, error: Exception) -> StoreFormatError:
    """What to raise for an event that is no record."""
    return StoreFormatError(f"event {seq} of queue {queue} cannot be read: {error}")
