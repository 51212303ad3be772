"""A command line in a directory of its own, and a way to bring jobs into any state.

Its store is a SQLite file, or one of each kind that a test is marked with (`shared`).
"""

import asyncio
import importlib
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.cli.main import run
from penstock.core.decide import NO_HANDLER
from penstock.core.job import NewJob, Options, QueueRef
from penstock.core.moves import Bury, Complete, Fail, Fault, Release, Retry, Settlement, Snooze
from penstock.core.outcomes import Enqueued
from penstock.stores.open import open_store
from penstock.stores.protocol import Store
from penstock.stores.values import WorkerEntry
from tests.conformance.having import kind_among
from tests.conformance.stores import STORES, Kind, Place

T = TypeVar("T")
MAIL = QueueRef("default", "mail")
BOOM = Fault("ERROR", "ValueError: boom 7\nTraceback …", "f00")

kind = kind_among([each for each in STORES if each.name == "sqlite"])


class Shell:
    """Runs commands; `store` works on their store directly."""

    def __init__(self, directory: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.url = url
        self.file = directory / "jobs.db"
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        """The exit code; what was written is in `out` and `err`."""
        self._capsys.readouterr()
        code = run(arguments)
        self.out, self.err = self._capsys.readouterr()
        return code

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The one document that a command writes with --json."""
        assert self(*arguments, "--json") == code, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    def json_lines(self, *arguments: str, code: int = 0) -> list[Any]:
        """The objects that a command writes with --json, one per line."""
        assert self(*arguments, "--json") == code, self.err
        return [json.loads(line) for line in self.out.splitlines()]

    def store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """What the work on the store returns."""

        async def opened() -> T:
            store = open_store(self.url)
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(opened())

    def enqueue(self, *ids: str, queue: QueueRef = MAIL, **fields: Any) -> list[str]:
        """Jobs of task `send` with these ids."""

        async def work(store: Store) -> list[str]:
            task = fields.pop("task", "send")
            new = [NewJob(id=each, nonce="n", task=task, payload=b'{"to":"ada"}', **fields) for each in ids]
            out = await store.moves.enqueue(queue, new)
            assert all(isinstance(each, Enqueued) for each in out)
            return list(ids)

        return self.store(work)

    def register_worker(self, *queues: str) -> None:
        """A live worker of these queues."""
        entry = WorkerEntry("w1", "here", 1, "1", dict.fromkeys(queues, 1), ("send",))
        self.store(lambda store: store.workers.register_worker("default", entry, 600_000))

    def claim(self, many: int = 1, *, queue: QueueRef = MAIL, lease_ms: int = 30_000) -> None:
        """Lease jobs to a worker and leave it at that."""
        self.store(lambda store: store.moves.claim(queue, worker="w1", limit=many, lease_ms=lease_ms))

    def settle(self, how: str, many: int = 1, *, queue: QueueRef = MAIL, fault: Fault = BOOM) -> None:
        """Lease jobs and end the deliveries so."""

        async def work(store: Store) -> None:
            claims = await store.moves.claim(queue, worker="w1", limit=many, lease_ms=30_000)
            assert len(claims.jobs) == many
            await store.moves.settle(
                queue, [_settlement(how, job.id, job.token, fault) for job in claims.jobs]
            )

        self.store(work)

    def dead(self, *ids: str, queue: QueueRef = MAIL, fault: Fault = BOOM, task: str = "send") -> None:
        """Jobs that are dead."""
        for each in ids:
            self.enqueue(each, queue=queue, options=Options(max_attempts=1), task=task)
            self.settle("bury", queue=queue, fault=fault)


def _settlement(how: str, job: str, token: str, fault: Fault) -> Settlement:
    match how:
        case "complete":
            return Complete(job, token, b'"sent"')
        case "fail":
            return Fail(job, token, fault)
        case "retry":
            return Retry(job, token, 60_000, fault)
        case "bury":
            return Bury(job, token, fault)
        case "send back":
            return Snooze(job, token, 60_000, NO_HANDLER)
        case "snooze":
            return Snooze(job, token, 60_000)
        case _:
            return Release(job, token)


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


def use_module(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A module in the current directory, to be imported anew."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    Path(f"{name}.py").write_text(text)
    importlib.invalidate_caches()


@pytest.fixture
def shell(
    kind: Kind,
    where: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    """Commands in an empty directory, on an empty store."""
    for name in [each for each in os.environ if each.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if kind.name == "sqlite" else kind.address(where)
    monkeypatch.setenv("PENSTOCK_URL", url)
    shell = Shell(tmp_path, url, capsys)
    shell.store(lambda store: store.health.info())
    return shell
