"""How much a worker asks of the server when there is nothing to do."""

import asyncio

from redis.asyncio import Redis

from penstock import Penstock

MOST_PER_MINUTE = 90
"""The documentation says some 70."""
FASTER = 20
SIGNS_OF_LIFE = 6
"""A minute, on the connection that listens; too slow to be seen in a shorter one."""


async def test_an_idle_worker_sends_few_commands(url: str, operator: Redis) -> None:
    """A minute of its rhythms, all of which follow from its poll and its lease, made shorter."""
    app = Penstock(f"{url}?idle_connections=0")
    mail = app.queue("mail")

    @mail.task
    async def send() -> None: ...

    async with app, operator.monitor() as monitor:
        worker = app.worker(poll=5 / FASTER, lease=30 / FASTER)
        working = asyncio.create_task(worker.run())
        starting = 5
        async for command in monitor.listen():
            starting -= command["command"].startswith("EVALSHA")
            if not starting:
                break
        sent: list[str] = []
        try:
            async with asyncio.timeout(60 / FASTER):
                async for command in monitor.listen():
                    sent += [command["command"]] if command["client_type"] != "lua" else []
        except TimeoutError:
            pass
        worker.stop()
        await working

    assert sent
    assert len(sent) + SIGNS_OF_LIFE <= MOST_PER_MINUTE, sent
