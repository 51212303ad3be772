"""What a queue handle tells of the last hours."""

import pytest

from penstock import Penstock
from penstock.core.errors import OptionError


async def test_a_queue_tells_what_it_did() -> None:
    app = Penstock("memory://")
    mail = app.queue("mail")

    @mail.task
    async def send(to: str) -> str:
        return to

    async with app:
        await send.enqueue("ada")
        await send.enqueue("bob")
        found = await mail.stats(since=3600)

    assert (found.total.enqueued, list(found.tasks), len(found.points)) == (2, [send.name], 1)


@pytest.mark.parametrize("since", [0, 31 * 86_400])
async def test_a_time_that_cannot_be_is_refused(since: float) -> None:
    app = Penstock("memory://")
    async with app:
        with pytest.raises(OptionError, match="since"):
            await app.queue("mail").stats(since=since)
