"""Bells of stores in tests."""

from typing import Final

from penstock.stores.protocol import Subscription
from tests.kit.waiting import SLOWNESS

_BRIEF: Final = 0.05 * SLOWNESS


async def take_rings(bell: Subscription) -> None:
    """Take the rings that have come so far, so that the next one tells of what the test does next.

    One that comes later still breaks no test: it only proves less.
    """
    while await bell.wait(_BRIEF):
        pass
