"""`workers list|show|drain|stop|versions`."""

from typing import Any

import msgspec

from penstock.stores.protocol import Store
from penstock.stores.values import OrderKind, RunningJob, WorkerEntry, WorkerState
from tests.cli.conftest import Shell


def register(shell: Shell, name: str = "ada", **more: Any) -> None:
    """A registered worker that executes a job."""

    async def do(store: Store) -> None:
        now = await store.clock.now()
        entry = WorkerEntry(
            *(name, "here", 7, "0.1", {"mail": 10, "web": 2}, ("send", "digest")),
            instance="i",
            app_version="2026.11",
            state=WorkerState.BUSY,
            slots=12,
            taken=1,
            busy={"mail": 1},
            jobs=(RunningJob("mail", "job-1", "send", 2, now - 200_000),),
            more_jobs=3,
            memory=50 * 2**20,
            uptime_ms=3_600_000,
            poll_age_ms=500,
            loop_lag_ms=12,
        )
        entry = msgspec.structs.replace(entry, **more)
        await store.workers.register_worker("default", entry, 600_000)

    shell.store(do)


def test_the_list_names_workers_with_what_they_do(shell: Shell) -> None:
    register(shell)
    register(shell, "bob", state=None, jobs=(), slots=0, uptime_ms=None, app_version=None, memory=None)

    assert shell("workers", "list") == 0
    assert "ada" in shell.out
    assert "1 of 12" in shell.out
    assert "mail=1/10, web=0/2" in shell.out
    assert "3 min" in shell.out
    assert "version 2026.11: first seen" in shell.out
    assert "bob" in shell.out


def test_a_worker_is_shown_with_its_jobs(shell: Shell) -> None:
    register(shell)

    assert shell("workers", "show", "ada") == 0
    for words in ("busy", "here, process 7", "2026.11, penstock 0.1", "digest, send", "50 MiB", "12 ms late"):
        assert words in shell.out
    assert "mail/job-1" in shell.out
    assert "and 3 more jobs" in shell.out
    found = shell.json("workers", "show", "ada")
    assert (found["worker"], found["state"], found["jobs"][0]["id"]) == ("ada", "busy", "job-1")


def test_workers_are_ordered_to_drain_and_to_stop(shell: Shell) -> None:
    register(shell)
    kinds = []
    for order in OrderKind:
        assert shell("workers", str(order), "ada") == 0
        assert f"ordered worker ada to {order}: 1 of its slots are taken" in shell.out
        found = shell.store(lambda store: store.workers.worker_order("default", "ada", "i"))
        assert found is not None
        kinds.append((found.kind, "@" in str(found.by)))

    assert kinds == [("drain", True), ("stop", True)]


def test_a_worker_that_is_not_there_is_one_clear_line(shell: Shell) -> None:
    register(shell)
    register(shell, "older", instance=None)

    for command in ("show", "drain", "stop"):
        assert shell("workers", command, "nobody") != 0
        assert (
            "found no live worker 'nobody', wanted one of those that are registered: ada, older" in shell.err
        )
    assert shell("workers", "drain", "older") != 0
    assert "worker 'older' takes no orders" in shell.err
    assert shell("workers", "show", "a\nb") != 0
    assert "WORKER" in shell.err


def test_versions_are_listed_with_their_first_sight(shell: Shell) -> None:
    register(shell)

    assert shell("workers", "versions") == 0
    assert "2026.11" in shell.out
    assert shell.json("workers", "versions")["app_version"] == "2026.11"
