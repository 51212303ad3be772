"""What the tests of webhooks share: endings in a queue, and an egress that reaches loopback."""

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.client.client import Client
from penstock.core.job import Job, NewJob, QueueRef
from penstock.core.moves import Bury, Complete, Fail, Fault, Settlement
from penstock.core.ranges import Address
from penstock.core.states import State
from penstock.service.egress.egress import Egress
from penstock.service.egress.policy import EgressPolicy
from penstock.service.webhooks.messages import QUEUE
from penstock.stores.protocol import Store
from penstock.stores.values import Query
from tests.service.egress.receiver import Receiver, receiving

LOCAL = EgressPolicy.of(allow="127.0.0.1", plain=True, ports="1-65535")
URL = "https://hooks.example/in"


async def on_loopback(host: str, port: int) -> list[Address]:
    """Every name is here."""
    return [ipaddress.ip_address("127.0.0.1")]


def local_egress() -> Egress:
    """An egress for which every name is on loopback, and that may go there."""
    return Egress(LOCAL, resolve=on_loopback)


@asynccontextmanager
async def hooked() -> AsyncIterator[tuple[Egress, Receiver, str]]:
    """An egress, a receiver that it reaches, and the receiver's url."""
    async with receiving() as receiver:
        yield local_egress(), receiver, f"http://hooks.example:{receiver.port}/in"


async def end(store: Store, queue: QueueRef, job: str, state: State = State.COMPLETED) -> None:
    """A job that was enqueued, ran and ended so."""
    await store.moves.enqueue(queue, [NewJob(id=job, nonce=job, task="send", payload=b"{}")])
    if state is State.CANCELLED:
        await store.moves.cancel(queue, [job])
        return
    claims = await store.moves.claim(queue, worker="w", limit=1, lease_ms=60_000)
    token = claims.jobs[0].token
    fault = Fault("ERROR", "ValueError: no such letter")
    moves: dict[State, Settlement] = {
        State.COMPLETED: Complete(job, token, b"1"),
        State.FAILED: Fail(job, token, fault),
        State.DEAD: Bury(job, token, fault),
    }
    await store.moves.settle(queue, [moves[state]])


async def deliveries(store: Store, tenant: str) -> list[Job]:
    """All jobs in the tenant's queue of webhooks, oldest first."""
    queue = QueueRef(tenant, QUEUE)
    if await store.queues.find_queue(queue) is None:
        return []
    return (await store.reads.find(queue, Query(limit=1_000))).jobs[::-1]


def client(store: Store, tenant: str) -> Client:
    """Who enqueues for the tenant."""
    return Client(store, tenant=tenant)
