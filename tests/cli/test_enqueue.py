"""`enqueue`: by name into a queue, or through an app that checks it."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.core.job import Job
from tests.cli.conftest import MAIL, Shell, use_module

APP = """
from datetime import date
from penstock import JobContext, Penstock

app = Penstock("sqlite:///jobs.db")
mail = app.queue("mail", max_attempts=7)

@mail.task
async def send(to: str, body: str = "", copies: int = 1, on: date | None = None, *, ctx: JobContext) -> str:
    return to

other = 3
"""


def enqueued(shell: Shell, *arguments: str) -> Job:
    document = shell.json("enqueue", *arguments)
    (job,) = shell.store(lambda store: store.reads.get(MAIL, [document["id"]]))
    assert job is not None
    return job


@pytest.fixture
def app(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """An app in a module of its own in the current directory."""
    name = f"shop_{shell.directory.name.replace('-', '_')}"
    Path(f"{name}.py").write_text(APP)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"{name}:app"


def test_an_id_is_printed(shell: Shell) -> None:
    assert shell("enqueue", "send", "--queue", "mail", "--declare", "to=ada") == 0
    assert len(shell.out.strip()) == 26


def test_values_are_json_where_they_can_be_and_text_where_not(shell: Shell) -> None:
    job = enqueued(
        shell, "send", "--queue", "mail", "--declare", "to=ada", "n=3", 'l=[1,"x"]', "b=true", "e=", "eq=a=b"
    )

    assert json.loads(job.payload) == {"to": "ada", "n": 3, "l": [1, "x"], "b": True, "e": "", "eq": "a=b"}


def test_a_payload_comes_from_the_line_a_file_or_standard_input(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("body.json").write_text('{"to": "file"}')
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"to": "stdin"}')))

    for text, to in (('{"to": "line"}', "line"), ("@body.json", "file"), ("-", "stdin")):
        job = enqueued(shell, "send", "--queue", "mail", "--declare", "--payload", text, "n=1")
        assert json.loads(job.payload) == {"to": to, "n": 1}


def test_options_travel_with_the_job(shell: Shell) -> None:
    options = {
        "--priority": "high",
        "--delay": "10m",
        "--key": "k",
        "--idempotency-key": "order-7",
        "--id": "mine",
        "--max-attempts": "2",
        "--backoff": "spool",
        "--timeout": "90s",
        "--retention": "1h",
        "--result-retention": "3h",
        "--key-retention": "2h",
    }

    job = enqueued(
        shell, "send", "--queue", "mail", "--declare", *(each for pair in options.items() for each in pair)
    )

    assert (job.id, job.priority, job.state, job.key, job.idempotency_key) == (
        "mine",
        7,
        "delayed",
        "k",
        "order-7",
    )
    assert (job.options.max_attempts, job.options.backoff.cap_ms) == (2, 300_000)
    assert (job.options.timeout_ms, job.options.retention_ms, job.options.key_retention_ms) == (
        90_000,
        3_600_000,
        7_200_000,
    )
    assert job.options.result_retention_ms == 10_800_000


def test_run_at_is_a_time(shell: Shell) -> None:
    job = enqueued(shell, "send", "--queue", "mail", "--declare", "--run-at", "2199-01-31T12:00:00Z")

    assert job.visible_at == 7_229_217_600_000


def test_the_same_key_gives_the_same_job_and_says_so(shell: Shell) -> None:
    first = ["enqueue", "send", "--queue", "mail", "--idempotency-key", "k", "to=ada"]
    assert shell(*first, "--declare") == 0
    job = shell.out.strip()

    assert shell(*first) == 0
    assert shell.out == f"{job} (exists already: pending)\n"
    other = [*first[:-1], "to=eve"]
    assert shell(*other) == 0
    assert shell.out == f"{job} (exists already: pending, with another payload)\n"
    assert shell(*other, "--strict") == 1
    assert "which has another payload" in shell.err


def test_one_of_a_kind_is_enqueued_once(shell: Shell) -> None:
    for rule in (["--unique", "waiting"], ["--unique", "live"], ["--throttle", "10m"]):
        send = ["enqueue", "send", "--queue", "mail", "--declare", *rule, "--unique-key", rule[-1], "to=ada"]
        assert shell(*send) == 0, shell.err
        job = shell.out.strip()

        assert shell(*send) == 0
        assert shell.out == f"{job} (exists already: pending)\n"


def test_a_debounced_job_gets_the_newest_arguments(shell: Shell) -> None:
    send = ["send", "--queue", "mail", "--declare", "--debounce", "10m", "--unique-key", "ada"]
    first = enqueued(shell, *send, "n=1")
    again = enqueued(shell, *send, "n=2")

    assert (again.id, again.payload, again.state) == (first.id, b'{"n":2}', "delayed")
    assert shell("enqueue", *send, "n=3") == 0
    assert "it has the new arguments now" in shell.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["send", "--queue", "mail", "--unique", "always"],
            2,
            "--unique: found 'always', wanted waiting or live",
        ),
        (
            ["send", "--queue", "mail", "--unique", "live", "--throttle", "1"],
            2,
            "unique, throttle or debounce",
        ),
        (["send", "--queue", "mail", "--debounce", "1m"], 2, "a key beside debounce"),
        (["send", "--queue", "mail", "--unique-key", "k"], 2, "unique, throttle or debounce beside it"),
        (["send"], 2, "no queue is named: give --queue, or --app"),
        (["send", "--queue", "mial"], 1, "no queue is named 'mial': did you mean 'mail'?"),
        (["sen d", "--queue", "mail"], 2, "task: found 'sen d'"),
        (["send", "--queue", "mail", "to"], 2, "argument: found 'to', wanted key=value"),
        (["send", "--queue", "mail", "to=a", "to=b"], 2, "to once"),
        (["send", "--queue", "mail", "--payload", "[1]"], 2, "wanted a JSON object"),
        (["send", "--queue", "mail", "--payload", "{"], 2, "--payload: found"),
        (["send", "--queue", "mail", "--payload", "@gone"], 2, "gone: No such file"),
        (["send", "--queue", "mail", "--delay", "soon"], 2, "--delay: found 'soon'"),
        (["send", "--queue", "mail", "--run-at", "noon"], 2, "--run-at: found 'noon'"),
        (["send", "--queue", "mail", "--priority", "11"], 2, "--priority: found 11, wanted 0 to 9"),
        (["send", "--queue", "mail", "--max-attempts", "0"], 2, "--max-attempts: found 0"),
        (["send", "--queue", "mail", "--delay", "1", "--run-at", "2199-01-01"], 2, "not both"),
    ],
)
def test_what_cannot_be_enqueued_is_one_line(
    shell: Shell, arguments: list[str], code: int, said: str
) -> None:
    shell.enqueue("a")

    assert shell("enqueue", *arguments) == code
    assert said in shell.err
    assert shell.err.count("\n") == 1


def test_a_taken_id_is_refused(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("enqueue", "send", "--queue", "mail", "--id", "a") == 1
    assert "the id 'a' is taken in queue 'mail'" in shell.err


def test_with_an_app_its_queue_and_defaults_are_used(shell: Shell, app: str) -> None:
    job = enqueued(shell, "--app", app, "send", "to=ada")

    assert (job.queue, job.options.max_attempts) == ("mail", 7)


def test_with_an_app_what_must_be_text_is_text(shell: Shell, app: str) -> None:
    job = enqueued(shell, "send", "--app", app, "to=42", "copies=2", "on=2026-01-31", "body=null")

    assert job.payload == b'{"to":"42","body":"null","copies":2,"on":"2026-01-31"}'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["snd", "to=a"], "did you mean 'send'?"),
        (["send"], "to"),
        (["send", "to=a", "copies=many"], "copies"),
        (["send", "to=a", "colour=red"], "colour"),
        (["send", "to=a", "on=yesterday"], "on"),
    ],
)
def test_with_an_app_the_task_and_its_arguments_are_checked(
    shell: Shell, app: str, arguments: list[str], said: str
) -> None:
    assert shell("enqueue", "--app", app, *arguments) in (1, 2)
    assert said in shell.err
    assert shell.err.count("\n") == 1


def test_a_store_that_is_named_goes_before_the_apps_own(
    shell: Shell, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("enqueue", "--app", app, "--url", "sqlite:///other.db", "send", "to=ada") == 0
    assert len(shell.json_lines("jobs", "list", "--url", "sqlite:///other.db")) == 1

    monkeypatch.delenv("PENSTOCK_URL")
    assert shell.json_lines("jobs", "list", "--app", app) == []


def test_a_tenant_other_than_the_apps_is_refused(shell: Shell, app: str) -> None:
    assert shell("enqueue", "--app", app, "--tenant", "acme", "send", "to=ada") == 2
    assert "--tenant: found 'acme', wanted 'default', the tenant of the app" in shell.err


def test_with_an_app_another_queue_has_to_be_known_or_declared(shell: Shell, app: str) -> None:
    assert shell("enqueue", "--app", app, "--queue", "web", "send", "to=ada") == 1
    assert "no queue is named 'web'" in shell.err
    assert (
        shell.json("enqueue", "--app", app, "--queue", "web", "--declare", "send", "to=ada")["queue"] == "web"
    )


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere", "wanted module:app"),
        ("nowhere:app", "no module 'nowhere'"),
        ("{module}:ap", "has no 'ap'"),
        ("{module}:other", "found an object of type int, wanted a Penstock"),
        ("broken_shop:app", "importing broken_shop failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_reference_is_one_clear_line(shell: Shell, app: str, reference: str, said: str) -> None:
    Path("broken_shop.py").write_text("1 / 0")
    reference = reference.format(module=app.partition(":")[0])

    for command in (["worker", reference], ["enqueue", "--app", reference, "send"]):
        assert shell(*command) == 2
        assert said in shell.err
        assert shell.err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ["enqueue", "send", "to=ada", "--app", "fleeting:app"],
        ["enqueue", "send", "--queue", "mail", "--declare", "--url", "memory://"],
        ["queues", "declare", "mail", "--url", "memory://"],
        ["schedules", "add", "daily", "send", "to=ada", "--every", "1d", "--app", "fleeting:app"],
    ],
)
def test_nothing_goes_into_a_store_that_ends_with_the_command(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("PENSTOCK_URL")
    use_module(monkeypatch, "fleeting", APP.replace("sqlite:///jobs.db", "memory://"))

    assert shell(*command) == 2
    assert shell.err.startswith("penstock: error: memory:// exists in one process only")
    assert shell.out == ""
