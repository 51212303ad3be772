"""What thousands of idle queues of one tenant cost the service, and another tenant's requests.

python -m benchmarks.service.many_queues sqlite 2000
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx

from benchmarks.machine import spent
from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis
from benchmarks.spawn import ROOT
from penstock.core.job import QueueRef
from penstock.service.auth.development import DevelopmentKey
from penstock.stores.open import open_store

SETTLING: Final = 20.0
"""Seconds until the process counts as idle."""
MEASURED: Final = 15.0


@contextmanager
def store_url(kind: str, folder: Path) -> Iterator[str]:
    """The address of an empty store."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'jobs.db'}"
    elif kind == "postgres":
        with postgres.running() as server:
            yield server.url
    else:
        with redis.running(kind, folder) as found:
            yield found.url


@contextmanager
def served(url: str) -> Iterator[tuple[int, str, str]]:
    """The service in a process of its own: its pid, its address and the token of a small tenant."""
    command = [sys.executable, "-m", "penstock.cli", "serve", "--url", url, "--port", "0", "--json"]
    service = subprocess.Popen(
        [*command, "--log-level", "error"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert service.stdout is not None
        said = json.loads(service.stdout.readline())
        key = Path(said["key_file"]).read_text().strip()
        token = DevelopmentKey.read(key).mint(
            tenants=["small"], subject="bench", scopes=["*"], seconds=3_600, now=time.time()
        )
        yield service.pid, said["address"], token
    finally:
        service.terminate()
        try:
            service.wait(60)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait(5)


async def fill(url: str, count: int) -> None:
    """Make the queues of the large tenant."""
    store = open_store(url)
    await store.open()
    for start in range(0, count, 100):
        names = [f"q{number}" for number in range(start, min(start + 100, count))]
        await asyncio.gather(*[store.queues.open_queue(QueueRef("large", name)) for name in names])
    await store.close()


def requests(places: dict[int, tuple[str, str]], seconds: float) -> dict[int, dict[str, str]]:
    """The latencies of the small tenant's requests to each service in turn, one after the other."""
    took: dict[int, dict[str, list[float]]] = {count: {"enqueue": [], "claim": []} for count in places}
    job = {"queue": "mail", "task": "t", "payload": {}}
    claim = {"worker": "bench", "limit": 1, "lease": 30}
    with ExitStack() as stack:
        clients = {
            count: stack.enter_context(
                httpx.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=120)
            )
            for count, (address, token) in places.items()
        }
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for count, client in clients.items():
                for name, path, body in (
                    ("enqueue", "/v1/jobs", {"jobs": [job]}),
                    ("claim", "/v1/queues/mail/claims", claim),
                ):
                    began = time.perf_counter()
                    client.post(path, json=body)
                    took[count][name].append(time.perf_counter() - began)
            time.sleep(0.01)
    return {count: {name: _figures(each) for name, each in of.items()} for count, of in took.items()}


def _figures(took: list[float]) -> str:
    took.sort()
    p50, p99 = took[len(took) // 2], took[min(len(took) - 1, len(took) * 99 // 100)]
    return f"p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, worst {took[-1] * 1000:.0f} ms, n {len(took)}"


def main(kind: str, count: int) -> None:
    """Measure a service over few queues and one over many beside each other, and print."""
    with ExitStack() as stack:
        urls = {}
        for each in (2, count):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            urls[each] = stack.enter_context(store_url(kind, folder))
            asyncio.run(fill(urls[each], each))
        for run in ("first start", "restart"):
            with ExitStack() as services:
                found = {each: services.enter_context(served(url)) for each, url in urls.items()}
                places = {each: (address, token) for each, (_, address, token) in found.items()}
                _print(run, kind, "from the start", requests(places, MEASURED))
                time.sleep(SETTLING)
                pids = {each: pid for each, (pid, _, _) in found.items()}
                before, began = {each: spent([pid]) for each, pid in pids.items()}, time.monotonic()
                time.sleep(MEASURED)
                passed = time.monotonic() - began
                cpu = {each: f"{(spent([pid]) - before[each]) / passed:.1%}" for each, pid in pids.items()}
                _print(run, kind, "of a core while idle", cpu)
                _print(run, kind, "later", requests(places, MEASURED))


def _print(run: str, kind: str, what: str, figures: Mapping[int, object]) -> None:
    for count, each in figures.items():
        print(f"{run}, {kind}, {count} queues, {what}: {each}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
