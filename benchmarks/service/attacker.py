"""The process of the hostile tenant: many queues, idle connections, and payloads that are costly to read."""

import asyncio
import resource
import sys
import time
from itertools import cycle
from typing import Final

import msgspec

from benchmarks.service.http import Client
from penstock.core.job import NewJob, QueueRef
from penstock.service.tenants.quota_repository import FIELDS, Quota, QuotaRepository
from penstock.stores.open import open_store

PAYLOADS: Final = 7
LISTS: Final = 340_000
PEERS: Final = tuple(f"127.0.0.{number}" for number in range(2, 7))
"""Addresses of idle connections: more than one, since one alone has a bound of its own."""
AT_A_TIME: Final = 20
"""Requests that wait for their answers."""
REOPEN_EVERY: Final = 1.0
_BATCH: Final = 100


def prepare(url: str, queues: int) -> dict[str, float]:
    """Give the tenant its queues, with a job in each, and a quota that allows them."""
    asyncio.run(_prepare(url, queues))
    return {"queues": queues}


def attack(address: str, token: str, connections: int, rate: int) -> dict[str, float]:
    """Keep idle connections open and make costly requests until standard input ends; answers per second."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return asyncio.run(_attack(address, token, connections, rate))


async def _prepare(url: str, queues: int) -> None:
    store = open_store(url)
    await store.open()
    try:
        if "queues" in FIELDS:
            await QuotaRepository(store.key_value).set("hostile", msgspec.convert({"queues": queues}, Quota))
        for first in range(0, queues, _BATCH):
            await asyncio.gather(
                *(
                    store.moves.enqueue(
                        QueueRef("hostile", f"q{number}"),
                        [NewJob(id=f"job-{number}", nonce="1", task="noop", payload=b"{}")],
                    )
                    for number in range(first, min(queues, first + _BATCH))
                )
            )
    finally:
        await store.close()


async def _attack(address: str, token: str, connections: int, rate: int) -> dict[str, float]:
    payload = b'{"a":[' + b",".join([b"[]"] * LISTS) + b"]}"
    job = b'{"queue":"q0","task":"noop","payload":' + payload + b"}"
    body = b'{"jobs":[' + b",".join([job] * PAYLOADS) + b"]}"
    idle = [Client(address, peer=peer) for _, peer in zip(range(connections), cycle(PEERS), strict=False)]
    for client in idle:
        await client.open()
    answered: list[int] = []
    stop = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    busy = [
        asyncio.create_task(_keep_open(idle)),
        *(
            asyncio.create_task(_keep_asking(Client(address, token, PEERS[0]), number, rate, body, answered))
            for number in range(AT_A_TIME)
        ),
    ]
    print("ready", flush=True)
    began = time.perf_counter()
    await asyncio.wait([stop, *busy], return_when=asyncio.FIRST_COMPLETED)
    seconds = time.perf_counter() - began
    for task in busy:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)
    return {"attacks": len(answered) / seconds}


async def _keep_open(idle: list[Client]) -> None:
    while True:
        await asyncio.sleep(REOPEN_EVERY)
        for client in idle:
            reader, _ = await client.open()
            if reader.at_eof() or reader.exception() is not None:
                client.close()
                await client.open()


async def _keep_asking(client: Client, number: int, rate: int, body: bytes, answered: list[int]) -> None:
    due = time.perf_counter() + (number + 1) / rate
    while True:
        await asyncio.sleep(due - time.perf_counter())
        try:
            status, _ = await client.ask("POST", "/v1/jobs", body)
            answered.append(status)
        except (OSError, EOFError):
            # The service ends connections that ask too much; a hostile client makes another one.
            client.close()
        # What is late is left out: the rate is a bound.
        due = max(due + AT_A_TIME / rate, time.perf_counter())
