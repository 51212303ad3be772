"""Subscriptions of stores in tests."""

from typing import Final

from penstock.stores.protocol import Subscription
from tests.kit.waiting import SLOWNESS

_BRIEF: Final = 0.05 * SLOWNESS


async def drain_notifications(subscription: Subscription) -> None:
    """Take the notifications that have come so far, so that the next one tells of what the test does next.

    One that comes later still breaks no test: it only proves less.
    """
    while await subscription.wait(_BRIEF):
        pass
