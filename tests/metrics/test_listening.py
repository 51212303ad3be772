"""A worker process answers scrapes at a port of its own, from threads."""

import asyncio
import socket

import httpx
import pytest

from penstock import Penstock
from penstock.app.measuring import add_metrics, instrument_if_installed
from penstock.app.pool import AppWorkers
from penstock.core.errors import ConfigError
from penstock.metrics import Metrics
from penstock.metrics.listener import listening
from penstock.stores.memory import MemoryStore
from penstock.worker.health_server import HealthServer, watched
from tests.kit.waiting import PATIENCE, eventually
from tests.metrics.kit import Parsed


async def test_a_worker_is_scraped_while_it_runs() -> None:
    app = Penstock(store=MemoryStore())
    app.instrument(Metrics())

    @app.task
    async def some() -> None: ...

    workers = app.worker()
    assert workers.exposition is not None
    with listening(workers.exposition, "127.0.0.1", 0) as port:
        running = asyncio.create_task(workers.run())
        async with app, httpx.AsyncClient(timeout=PATIENCE) as client:
            await (await some.enqueue()).result(timeout=PATIENCE)

            async def scraped() -> Parsed | None:
                found = Parsed((await client.get(f"http://127.0.0.1:{port}/metrics")).content)
                is_there = found.labels("penstock_jobs", "state") and not found.value("penstock_sample_stale")
                return found if is_there else None

            found = await eventually(scraped, "a sample")
        workers.stop()
        await running

    assert found is not None
    assert found.value("penstock_executions_total", task="some", outcome="completed") == 1


def test_a_port_in_use_is_refused_by_name() -> None:
    app = Penstock(store=MemoryStore())
    app.instrument(Metrics())
    app.queue("q")
    workers = app.worker()
    assert workers.exposition is not None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"),
            listening(workers.exposition, "127.0.0.1", port),
        ):
            pass


async def test_the_health_port_answers_scrapes_too() -> None:
    app = Penstock(store=MemoryStore())
    instrument_if_installed(app)
    app.queue("q")
    workers = app.worker()
    assert isinstance(workers, AppWorkers)
    assert workers.health is not None
    assert workers.exposition is not None
    server = HealthServer(workers.health, "127.0.0.1", 0)
    add_metrics(server, workers.exposition)
    with watched(workers.health, server):
        running = asyncio.create_task(workers.run())
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            answer = await client.get(f"http://127.0.0.1:{server.port}/metrics")
        workers.stop()
        await running

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "penstock_build_info" in Parsed(answer.content).families
