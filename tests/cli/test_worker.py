"""`worker`: every option in three ways, and real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock import settings
from penstock.cli.commands import build
from penstock.core.states import State
from tests.cli.conftest import MAIL, Shell, use_module
from tests.kit.waiting import PATIENCE

APP = """
from penstock import Penstock

app = Penstock("sqlite:///jobs.db")
mail = app.queue("mail")

@mail.task
async def send(to: str) -> str:
    return f"sent to {to}"

nothing = None
"""


def test_every_option_of_worker_has_a_flag_a_variable_and_a_place_in_the_file() -> None:
    command: Any = typer.main.get_command(build())
    options = {
        parameter.name
        for parameter in command.commands["worker"].params
        if parameter.param_type_name == "option" and not parameter.hidden
    }
    everywhere = {"url", "tenant", "json", "absolute_times", "debug", "config"}

    wanted = {name.removeprefix("worker.") for name in settings.names() if name.startswith("worker.")}

    assert options - everywhere == wanted
    assert everywhere - {"config"} <= set(settings.names())


@pytest.fixture
def app(shell: Shell) -> str:
    """An app in the current directory."""
    Path("shop.py").write_text(APP)
    return "shop:app"


def penstock(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def test_a_burst_works_off_what_is_there(shell: Shell, app: str) -> None:
    assert shell("enqueue", "send", "--queue", "mail", "--declare", "to=ada") == 0
    job = shell.out.strip()

    with penstock("worker", app, "--queues", "mail=2", "--burst", "--log-json") as process:
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, err
    assert shell.json("jobs", "show", job)["result"] == "sent to ada"
    assert all(json.loads(line)["level"] for line in err.splitlines())


def test_a_worker_on_memory_says_that_nobody_can_reach_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_URL")
    Path("alone.py").write_text(APP.replace("sqlite:///jobs.db", "memory://"))
    with penstock("worker", "alone:app", "--burst") as process:
        _, err = process.communicate(timeout=PATIENCE)

    assert "memory:// exists in this process only: no other process can enqueue jobs for this worker" in err


def test_a_worker_runs_without_standard_streams(shell: Shell, app: str) -> None:
    shell.enqueue("a")
    command = f"exec {sys.executable} -m penstock.cli worker {app} --burst <&- >&- 2>&-"

    assert subprocess.run(["sh", "-c", command], timeout=30).returncode == 0
    assert shell.json("jobs", "show", "a")["state"] == "completed"


def test_the_collector_leaves_out_what_was_there_before_the_first_job(shell: Shell) -> None:
    Path("shop.py").write_text(APP.replace('f"sent to {to}"', 'f"{gc.get_freeze_count()}"') + "import gc")
    assert shell("enqueue", "send", "--queue", "mail", "--declare", "to=ada") == 0
    job = shell.out.strip()

    with penstock("worker", "shop:app", "--burst") as process:
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, err
    assert int(shell.json("jobs", "show", job)["result"]) > 10_000


def test_sigterm_ends_a_worker_cleanly(shell: Shell, app: str) -> None:
    with penstock("worker", app, "--lease", "5s", "--poll", "100ms", "--log-level", "info") as process:
        assert process.stderr is not None
        assert "worker started" in process.stderr.readline()
        shell.enqueue("a")
        while shell.store(lambda store: store.reads.counts(MAIL))[State.COMPLETED] == 0:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_a_health_port_that_is_in_use_is_one_clear_line(shell: Shell, app: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with penstock("worker", app, "--burst", "--health-port", str(port)) as process:
            _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode not in (0, None)
    assert f"health_port: cannot listen on 127.0.0.1:{port}" in err
    assert "Traceback" not in err


def test_several_processes_have_no_health_port(shell: Shell, app: str) -> None:
    with penstock("worker", app, "--processes", "2", "--health-port", "0") as process:
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode not in (0, None)
    assert "health_port" in err
    assert "no port with --processes" in err


def test_a_worker_serves_its_health(shell: Shell, app: str) -> None:
    with penstock("worker", app, "--health-port", "0", "--log-json") as process:
        assert process.stderr is not None
        said = json.loads(process.stderr.readline())["message"]
        url = said.removeprefix("health is served at ")
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            status = json.load(answer)
        while json.loads(process.stderr.readline())["message"] != "worker started":
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)

    assert status == {"status": "ok"}
    assert process.returncode == 0


def test_options_come_from_the_file_too(shell: Shell, app: str) -> None:
    Path("penstock.toml").write_text(f'app = "{app}"\n[worker]\nburst = true\nqueues = {{ mail = 3 }}')

    with penstock("worker") as process:
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no app is named: give MODULE:APP, such as shop.jobs:app, set PENSTOCK_APP"),
        (["shop.py:app"], "found the path 'shop.py:app', wanted a module, such as shop:app\n"),
        (["./sub/shop.py:app"], "wanted a module, such as sub.shop:app\n"),
        (["../shop.py:app"], "wanted a module, such as shop:app in the directory ..\n"),
        (["..shop:app"], "found the path '..shop:app'"),
        (["shop:send"], "found an object of type AsyncTask, wanted a Penstock"),
        (["shop:nothing"], "app 'shop:nothing': found None, wanted a Penstock"),
        (["shop:app", "--queues", "mail=many"], "--queues: found 'mail=many'"),
        (["shop:app", "--queues", "mial=1"], "mial"),
        (["shop:app", "--concurrency", "0"], "--concurrency: found '0', wanted a whole number from 1"),
        (["shop:app", "--lease", "soon"], "--lease: found 'soon'"),
        (["shop:app", "--lease", "0"], "lease: found"),
        (["shop:app", "--log-level", "loud"], "--log-level: found 'loud'"),
    ],
)
def test_what_a_worker_cannot_do_is_one_line(
    shell: Shell, app: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("shop", None)

    assert shell("worker", *arguments) in (1, 2)
    assert said in shell.err
    assert shell.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = x / 0", "ZeroDivisionError: division by zero (at broken.py:2; --debug shows more)"),
        ("from penstock import Penstock\n\nPenstock(3)", "(at broken.py:3; --debug shows more)"),
        ("import json\njson.loads('')", "(at broken.py:2; --debug shows more)"),
        ("import no_such_thing", "No module named 'no_such_thing' (at broken.py:1; --debug shows more)"),
        ("x = = 1", "failed: SyntaxError: invalid syntax (broken.py, line 1) (--debug shows more)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_the_line_that_failed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    use_module(monkeypatch, "broken", text)

    assert shell("worker", "broken:app") == 2
    assert said in shell.err
    assert shell.err.count("\n") == 1
