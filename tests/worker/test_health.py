"""Probes of a worker, and what systemd is told: answered from a thread that handlers cannot block."""

import asyncio
import json
import os
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.core.errors import ConfigError, StoreUnavailableError
from penstock.stores.memory import MemoryStore
from penstock.worker import health as health_module
from penstock.worker.health import WorkerHealth
from penstock.worker.health_server import HealthServer, watched
from penstock.worker.registration import Registration
from penstock.worker.renewer import LeaseRenewer
from penstock.worker.slots import Slots
from penstock.worker.status import QueueStatus
from penstock.worker.systemd import SystemdNotifier
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, block_until
from tests.worker.kit import StoppedClock


def fetch(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """The status of the answer, and what it says."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    return status, json.loads(body)["status"] if body else ""


class Away(InterceptedStore):
    """A memory store that can be away, for those who ask for its time."""

    is_away = False

    async def now(self) -> int:
        if self.is_away:
            raise StoreUnavailableError("away")
        return await self.real.clock.now()


async def test_a_worker_is_ready_while_it_works_and_the_store_answers() -> None:
    store = Away()
    app = Penstock(store=store)

    @app.task
    async def send() -> None: ...

    workers = app.worker()
    assert workers.health is not None
    server = HealthServer(workers.health, "127.0.0.1", 0)
    with watched(workers.health, server):
        early = await asyncio.to_thread(fetch, server.port, "/health/ready")
        running = asyncio.create_task(workers.run())
        while (await asyncio.to_thread(fetch, server.port, "/health/ready"))[0] != 200:
            assert not running.done()
        live = await asyncio.to_thread(fetch, server.port, "/health/live")
        head = await asyncio.to_thread(fetch, server.port, "/health/live", "HEAD")
        nowhere = await asyncio.to_thread(fetch, server.port, "/metric")
        post = await asyncio.to_thread(fetch, server.port, "/health/live", "POST")
        store.is_away = True
        away = await asyncio.to_thread(fetch, server.port, "/health/ready")
        still = await asyncio.to_thread(fetch, server.port, "/health/live")
        store.is_away = False
        workers.stop()
        await running

    assert early == (503, "the worker starts")
    assert (live, head) == ((200, "ok"), (200, ""))
    assert nowhere == (404, "wanted one of /health/live, /health/ready")
    assert post == (405, "found POST, wanted GET")
    assert away == (503, "the store does not answer")
    assert still == (200, "ok"), "a store that is away is no reason to start the worker again"


async def test_a_handler_that_blocks_the_event_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "LOOP_SILENCE", 0.5)
    app = Penstock(store=MemoryStore())
    go = threading.Event()

    @app.task
    async def block() -> None:
        go.wait(PATIENCE)

    workers = app.worker()
    assert workers.health is not None
    server = HealthServer(workers.health, "127.0.0.1", 0)
    seen: list[tuple[int, str]] = []

    def probe() -> None:
        def is_seen() -> bool:
            seen.append(fetch(server.port, "/health/live"))
            return seen[-1][0] == 503

        block_until(is_seen)
        go.set()

    with watched(workers.health, server):
        async with app:
            await block.enqueue()
            probing = threading.Thread(target=probe)
            probing.start()
            running = asyncio.create_task(workers.run())
            await asyncio.to_thread(probing.join)
            workers.stop()
            await running

    assert seen[-1][1].startswith("the event loop has been blocked for ")


async def test_a_queue_that_is_not_polled_is_seen_and_one_without_free_slots_is_not() -> None:
    clock = StoppedClock()
    store = MemoryStore()
    registration = Registration(store, "default", "w", {"mail": 1}, ["t"], clock=clock)
    health = WorkerHealth(registration, LeaseRenewer(store))
    status = QueueStatus("mail", Slots(1), {}, lease=30, poll=5)
    with registration.serving(status):
        async with registration.held():
            status.moved_at = clock()
            clock.turn(61)
            registration.lag.beat_at = clock()
            unpolled = health.faults()
            status.is_waiting = True
            busy = health.faults()
            status.is_waiting = False
            status.poll = 100
            slow = health.faults()
            status.poll = 5
            registration.stopping()
            status.is_stopping = True
            stopping = health.faults()
            is_ready = await health.unready()

    assert unpolled == ["queue mail has not been polled for 61 s"]
    assert (busy, slow, stopping) == ([], [], [])
    assert is_ready == "the worker shuts down"


def test_a_port_that_is_in_use_is_one_clear_error() -> None:
    store = MemoryStore()
    registration = Registration(store, "default", "w", {"mail": 1}, ["t"])
    health = WorkerHealth(registration, LeaseRenewer(store))
    first = HealthServer(health, "127.0.0.1", 0)

    with pytest.raises(ConfigError, match=rf"health_port: cannot listen on 127.0.0.1:{first.port}: .*in use"):
        HealthServer(health, "127.0.0.1", first.port)
    with pytest.raises(ConfigError, match=r"health_port: cannot listen on no\.such\.host\.invalid:0"):
        HealthServer(health, "no.such.host.invalid", 0)
    first.close()


async def test_a_client_that_says_nothing_holds_up_no_probe() -> None:
    store = MemoryStore()
    health = WorkerHealth(Registration(store, "default", "w", {"m": 1}, ["t"]), LeaseRenewer(store))
    server = HealthServer(health, "127.0.0.1", 0)
    with watched(health, server):
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        noisy = socket.create_connection(("127.0.0.1", server.port))
        noisy.sendall(b"x" * 20_000)
        found = await asyncio.to_thread(fetch, server.port, "/health/live?full=1")
        for each in (*silent, noisy):
            each.close()

    assert found == (200, "ok")


async def test_systemd_is_told_of_start_life_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = str(tmp_path / "notify")
    receiving.bind(address)
    receiving.settimeout(PATIENCE)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    app = Penstock(store=MemoryStore())

    @app.task
    async def send() -> None: ...

    workers = app.worker(concurrency=3)
    assert workers.health is not None
    lines: list[str] = []

    def receive(wanted: str) -> None:
        while wanted not in lines:
            lines.append(receiving.recv(1_000).decode())

    with watched(workers.health, None):
        running = asyncio.create_task(workers.run())
        await asyncio.to_thread(receive, "READY=1")
        await asyncio.to_thread(receive, "WATCHDOG=1")
        await asyncio.to_thread(receive, "STATUS=0 of 3 slots are taken")
        workers.stop()
        await running
    await asyncio.to_thread(receive, "STOPPING=1")
    receiving.close()


def test_what_systemd_does_not_ask_for_is_not_done(tmp_path: Path) -> None:
    mine = {"NOTIFY_SOCKET": "@penstock", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}
    found = SystemdNotifier.of(mine)
    assert found is not None
    assert found.watchdog_seconds == 3
    for environ in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}):
        assert SystemdNotifier.of(environ) is None
    for other in ({"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}):
        notifier = SystemdNotifier.of(mine | other)
        assert notifier is not None
        assert notifier.watchdog_seconds is None
    # Nobody listens there: nothing happens.
    SystemdNotifier(str(tmp_path / "none"), None).send("READY=1")
