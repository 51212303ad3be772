"""What the processes do that make requests."""

import asyncio
import time

import msgspec

from penstock import Penstock
from penstock.stores.remote.address import Target, parse
from penstock.stores.remote.connection import Connection

_LONGEST = 60.0


def create(url: str, jobs: int, batch: int) -> dict[str, float]:
    """Jobs per second by `enqueue_many`; the first batch, which opens connections, is not timed."""
    app = Penstock(url)

    @app.task
    async def noop(n: int) -> None: ...

    async def measure() -> float:
        async with app:
            chunks = [[(n,) for n in range(batch)]] * (jobs // batch)
            await noop.enqueue_many(chunks[0])
            start = time.perf_counter()
            for chunk in chunks:
                await noop.enqueue_many(chunk)
            return time.perf_counter() - start

    return {"rate": jobs // batch * batch / asyncio.run(measure())}


def post(url: str, jobs: int, batch: int) -> dict[str, float]:
    """The same as JSON that any language could send."""
    wishes = [{"queue": "default", "task": "noop", "payload": {"n": n}} for n in range(batch)]
    body = msgspec.json.encode({"jobs": wishes})

    async def measure() -> float:
        target = parse(url)
        line = await _dialled(target)
        head = _head(target, "POST", "/v1/jobs", len(body))
        await _asked(line, head, body)
        start = time.perf_counter()
        for _ in range(jobs // batch):
            await _asked(line, head, body)
        return time.perf_counter() - start

    return {"rate": jobs // batch * batch / asyncio.run(measure())}


def single(url: str, what: str, requests: int, connections: int) -> dict[str, float]:
    """Requests per second over so many connections, and the 99th percentile of how long one took."""
    target = parse(url)
    body = b"" if what == "hello" else msgspec.json.encode({"task": "noop", "payload": {"n": 1}})
    method, path = ("GET", "/health/live") if what == "hello" else ("POST", "/v1/queues/default/jobs")
    head = _head(target, method, path, len(body))
    took: list[float] = []

    async def measure() -> float:
        lines = [await _dialled(target) for _ in range(connections)]
        for line in lines:
            await _asked(line, head, body)
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for line in lines:
                group.create_task(keep_asking(line))
        return time.perf_counter() - start

    async def keep_asking(line: Connection) -> None:
        for _ in range(requests // connections):
            before = time.perf_counter()
            await _asked(line, head, body)
            took.append(time.perf_counter() - before)

    seconds = asyncio.run(measure())
    took.sort()
    return {"rate": len(took) / seconds, "p99": took[int(len(took) * 0.99)] * 1000}


async def _dialled(target: Target) -> Connection:
    _, line = await asyncio.get_running_loop().create_connection(Connection, target.host, target.port)
    return line


async def _asked(line: Connection, head: bytes, body: bytes) -> None:
    answer = await line.call(head, body, _LONGEST)
    if not 200 <= answer.status < 300:
        raise RuntimeError(f"{answer.status}: {answer.body.decode()}")


def _head(target: Target, method: str, path: str, size: int) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"host: {target.authority}",
        "content-type: application/json",
        f"authorization: Bearer {target.token.text}",
        f"content-length: {size}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()
