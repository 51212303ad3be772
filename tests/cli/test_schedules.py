"""`schedules` and `scheduler`: what runs when, in words and for programs."""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.core.states import State
from penstock.stores.values import Query, StoredSchedule
from penstock.testing.conformance.parts import Part
from tests.cli.conftest import MAIL, Shell
from tests.conformance.having import shared
from tests.kit.waiting import PATIENCE

APP = """
from penstock import Penstock

app = Penstock("sqlite:///jobs.db")
mail = app.queue("mail")

@app.cron("30 3 * * MON", zone="Europe/Berlin", kwargs={"to": "ada"})
@mail.task
async def send(to: str) -> str:
    return f"sent to {to}"
"""


@pytest.fixture
def mail(shell: Shell) -> Shell:
    """A shell with a queue."""
    shell.store(lambda store: store.queues.open_queue(MAIL))
    return shell


def add(shell: Shell, *more: str) -> int:
    return shell("schedules", "add", "digest", "send", "to=ada", "--queue", "mail", *more)


@shared(Part.SCHEDULES)
def test_a_schedule_is_added_listed_and_shown_in_words(mail: Shell) -> None:
    assert add(mail, "--cron", "30 3 * * *", "--zone", "Europe/Berlin", "--catch-up", "all") == 0
    assert mail.out.startswith("schedule 'digest' runs every day at 03:30 (Europe/Berlin); next: in ")

    (listed,) = mail.json_lines("schedules", "list")
    shown = mail.json("schedules", "show", "digest", "--runs", "3")
    assert (listed["schedule"], listed["queue"], listed["task"]) == ("digest", "mail", "send")
    assert (listed["cron"], listed["zone"], listed["catch_up_limit"]) == ("30 3 * * *", "Europe/Berlin", 100)
    assert (listed["payload"], listed["paused"]) == ({"to": "ada"}, False)
    assert shown["next_runs"][0] == shown["next_at"]
    assert [each[11:16] for each in shown["next_runs"]] == ["03:30"] * 3
    assert mail("schedules", "show", "digest") == 0
    assert "catch up  all, at most 100" in mail.out
    assert mail("schedules", "list") == 0
    assert mail.out.split()[:2] == ["schedule", "queue"]


@shared(Part.SCHEDULES)
def test_an_interval_can_be_paused_resumed_run_and_removed(mail: Shell) -> None:
    assert add(mail, "--every", "10m", "--priority", "high") == 0

    assert mail.json("schedules", "pause", "digest")["paused"]
    assert mail("schedules", "list") == 0
    assert "paused" in mail.out
    assert not mail.json("schedules", "resume", "digest")["paused"]
    job = mail.json("schedules", "run", "digest")["id"]
    (found,) = mail.store(lambda store: store.reads.get(MAIL, [job]))
    assert found is not None
    assert (found.schedule, found.priority, found.payload) == ("digest", 7, b'{"to":"ada"}')
    assert mail.json("schedules", "remove", "digest")["removed"]
    assert mail.json_lines("schedules", "list") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "either --cron or --every"),
        (["--cron", "@daily", "--every", "5m"], "either --cron or --every"),
        (["--cron", "99 * * * *"], "cron minute: found '99'"),
        (["--cron", "@daily", "--zone", "Europe/Berlni"], "near it: Europe/Berlin"),
        (["--every", "100ms"], "every: found 0.1"),
        (["--cron", "@daily", "--catch-up", "some"], "one of none, last, all"),
        (["--cron", "@daily", "--starts-at", "soon"], "--starts-at: found 'soon'"),
        (["--cron", "@daily", "--queue", "mial"], "did you mean 'mail'?"),
    ],
)
def test_what_cannot_be_a_schedule_is_one_line(mail: Shell, arguments: list[str], said: str) -> None:
    assert add(mail, *arguments) in (1, 2)
    assert said in mail.err
    assert mail.err.count("\n") == 1


def test_an_unknown_schedule_is_told_with_those_near_it(mail: Shell) -> None:
    add(mail, "--every", "10m")

    for command in ("show", "pause", "resume", "run", "remove"):
        assert mail("schedules", command, "digets") == 2
        assert "near it: digest" in mail.err


def test_with_an_app_its_task_says_queue_and_arguments(mail: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("shop.py").write_text(APP)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("shop", None)

    add_it = ("schedules", "add", "again", "send", "--every", "1h", "--app", "shop:app")
    assert mail(*add_it, "tp=ada") == 2
    assert mail.json(*add_it, "to=ada")["queue"] == "mail"


def test_a_scheduler_puts_the_apps_schedules_and_fires_without_workers(mail: Shell) -> None:
    Path("shop.py").write_text(APP)
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "scheduler", "shop:app", "--tick", "100ms", "--log-json"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    with process:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["message"] == "scheduler started"
        mail.store(lambda store: store.clock.advance_clock(8 * 24 * 3600 * 1000))
        while mail.store(lambda store: store.reads.counts(MAIL))[State.PENDING] == 0:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, err
    assert "Traceback" not in err
    (job,) = mail.store(lambda store: store.reads.find(MAIL, Query())).jobs
    assert (job.schedule, job.payload) == ("send", b'{"to":"ada"}')


@shared(Part.SCHEDULES)
def test_a_scheduler_needs_no_code(mail: Shell) -> None:
    add(mail, "--every", "1s")
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "scheduler", "--queue", "mail", "--tick", "60s"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    with process:
        while mail.store(lambda store: store.reads.counts(MAIL))[State.PENDING] < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, err


def test_a_keyed_queue_takes_no_schedule_with_a_priority(shell: Shell) -> None:
    assert shell("queues", "declare", "mail", "--mode", "keyed") == 0
    command = ["schedules", "add", "daily", "send", "--queue", "mail", "--every", "1d", "--key", "a"]

    assert shell(*command, "--priority", "high") == 2
    assert "priority: found 7, wanted none: in queue 'mail', which is keyed, keys take turns" in shell.err
    assert shell(*command) == 0


def test_one_that_cannot_be_read_is_listed_and_removed(mail: Shell) -> None:
    assert add(mail, "--every", "10m") == 0
    mail.store(lambda store: store.schedules.put_schedule(StoredSchedule(MAIL, "odd", b"garbage", 1)))

    good, odd = mail.json_lines("schedules", "list")
    assert (good["schedule"], odd["schedule"], odd["queue"]) == ("digest", "odd", "mail")
    assert "cannot be read" in odd["fault"]
    assert mail("schedules", "list") == 0
    assert "never: remove it" in mail.out
    assert mail("schedules", "remove", "odd") == 0
    assert [each["schedule"] for each in mail.json_lines("schedules", "list")] == ["digest"]


def test_schedules_that_the_app_no_longer_declares_are_pruned(
    mail: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for module in ("shop", "older"):
        sys.modules.pop(module, None)
    Path("shop.py").write_text(APP)
    monkeypatch.syspath_prepend(Path.cwd())
    Path("older.py").write_text(APP.replace('"30 3 * * MON"', '"30 3 * * MON", name="older"'))
    for module in ("older", "shop"):
        loaded = importlib.import_module(module)
        asyncio.run(_synced(loaded.app))

    assert mail("schedules", "prune", "--app", "shop:app", "--dry-run") == 0
    assert mail.out.startswith("would remove schedule 'older': ")
    assert mail("schedules", "prune", "--app", "shop:app") == 2
    assert "Remove schedules older? Standard input is no terminal to ask at: use --yes" in mail.err
    assert len(mail.json_lines("schedules", "list")) == 2
    assert mail("schedules", "prune", "--app", "shop:app", "--yes") == 0
    assert mail.out.startswith("removed schedule 'older': ")
    assert [each["schedule"] for each in mail.json_lines("schedules", "list")] == ["send"]
    assert mail("schedules", "prune") == 2
    assert "no app is named" in mail.err


async def _synced(app: Penstock) -> None:
    async with app:
        await app.schedules.sync()
