"""Puts very many schedules, as an app does at its start, and the same ones again."""

import time

from benchmarks.spawn import Figures
from penstock import Penstock


async def put_schedules(url: str, count: int) -> Figures:
    """Seconds to put the schedules of an app that has so many, and to put them again unchanged."""
    app = Penstock(url)
    queue = app.queue("q")

    @queue.task
    async def send(number: int) -> None: ...

    for number in range(count):
        app.schedules.every(hours=1, name=f"s-{number}")(send.call(number))
    async with app:
        began = time.perf_counter()
        await app.schedules.sync()
        put = time.perf_counter()
        await app.schedules.sync()
        return {"put": put - began, "again": time.perf_counter() - put}
