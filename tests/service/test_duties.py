"""What the service does beside its requests goes on, whatever goes wrong in it."""

import asyncio
import logging

import pytest

from penstock.service.app import Service
from penstock.stores.memory import MemoryStore
from tests.kit.waiting import until
from tests.service.kit import HeaderAuthenticator


class Failing:
    """Fails twice, each time a moment after it began."""

    def __init__(self) -> None:
        self.begun = 0
        self.is_over = False

    async def run(self) -> None:
        self.begun += 1
        try:
            await asyncio.sleep(0)
            if self.begun < 3:
                raise AttributeError(f"failure {self.begun}")
            await asyncio.Event().wait()
        finally:
            self.is_over = self.begun == 3


async def test_a_duty_that_fails_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    """Upkeep and webhooks of all tenants hang on it."""
    duty = Failing()
    with caplog.at_level(logging.ERROR, logger="penstock.service"):
        async with Service(MemoryStore(), authenticator=HeaderAuthenticator(), duties=[duty]):
            await until(lambda: duty.begun == 3)

    assert duty.is_over
    assert [record.message for record in caplog.records] == [
        "a duty of the service failed and begins again: Failing"
    ] * 2
