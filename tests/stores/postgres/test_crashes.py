"""A server that goes down in the middle of everything."""

import asyncio
import signal

from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.testing.conformance.arrange import claim, enqueue, new_job, states_of
from tests.conformance import process
from tests.conformance.stores import Kind, opened
from tests.kit import postgres
from tests.kit.waiting import PATIENCE
from tests.stores.postgres.conftest import binaries_of


async def test_a_server_that_crashes_in_a_burst_loses_nothing_accepted(kind: Kind, queue: QueueRef) -> None:
    """The leases it knew of are still held."""
    binaries = binaries_of(kind)
    with postgres.data_folder(binaries) as folder:
        server, port = postgres.start(binaries, folder)
        try:
            address = postgres.url_at(port)
            async with opened(kind.connect(address)) as store:
                await enqueue(store, queue, [new_job(f"held-{n}") for n in range(3)])
                held = await claim(store, queue)
            with process.started(kind, address, queue, "burst", "10") as producer:
                accepted = await asyncio.to_thread(process.lines_until, producer, 15)
                # Every process of the server stops where it is; the next start recovers from the log.
                server.send_signal(signal.SIGQUIT)
                server.wait(PATIENCE)
                producer.kill()
                rest = process.rest_of(producer)
            server, _ = postgres.start(binaries, folder, port=port)
            wanted = [f"{batch}-{n}" for batch in accepted + rest for n in range(10)]
            async with opened(kind.connect(address)) as store:
                states = await states_of(store, queue, wanted)
                settled = await store.moves.settle(queue, [Complete(job.id, job.token) for job in held])
                findings = await store.health.check(queue)
        finally:
            postgres.stop(server)

    assert states == [State.PENDING] * len(wanted)
    assert settled == [Applied(State.COMPLETED)] * 3
    assert findings == []
