"""`webhooks`: who is told of endings, and what they were told."""

import base64
from typing import Any

import pytest

from penstock.core.job import QueueRef
from penstock.service.webhooks.messages import QUEUE
from penstock.stores.values import Query
from penstock.testing.conformance.parts import Part
from tests.cli.conftest import Shell
from tests.conformance.having import served

URL = "https://hooks.example/in"


def add(shell: Shell, *more: str) -> str:
    return str(shell.json("webhooks", "add", URL, *more)["id"])


@served(Part.KEY_VALUE, only_shared=True)
def test_a_webhook_is_added_listed_and_removed(shell: Shell) -> None:
    made = shell.json("webhooks", "add", URL, "--type", "job.dead", "--queue", "mail-*", "--note", "shop")

    (listed,) = shell.json_lines("webhooks", "list")
    assert made.pop("secret").startswith("whsec_")
    assert listed == made
    assert (made["types"], made["queues"], made["note"]) == (["job.dead"], ["mail-*"], "shop")
    assert shell("webhooks", "list") == 0
    assert made["id"] in shell.out
    assert shell("webhooks", "remove", made["id"]) == 0
    assert shell.json_lines("webhooks", "list") == []
    assert shell("webhooks", "remove", made["id"]) == 1
    assert shell.err == f"penstock: error: no webhook '{made['id']}'\n"


def test_the_secret_is_printed_when_it_is_made_and_replaced(shell: Shell) -> None:
    assert shell("webhooks", "add", URL) == 0
    hook, secret = (line.split()[1] for line in shell.out.splitlines())

    assert shell("webhooks", "rotate", hook, "--overlap", "1h") == 0
    assert shell.out.splitlines()[0].split() == ["webhook", hook]
    assert shell.out.splitlines()[1].split()[1] not in ("", secret)
    assert shell("webhooks", "list") == 0
    assert "whsec_" not in shell.out


@served(Part.KEY_VALUE, only_shared=True)
def test_deliveries_are_listed_and_sent_again(shell: Shell) -> None:
    hook = add(shell)
    sent = shell.json("webhooks", "ping", hook)
    shell.store(lambda store: store.moves.cancel(QueueRef("default", QUEUE), [sent["id"]]))

    (listed,) = shell.json_lines("webhooks", "deliveries", hook, "--state", "cancelled")
    assert (listed["id"], listed["type"], listed["attempts"]) == (sent["id"], "webhook.ping", 0)
    assert shell("webhooks", "deliveries") == 0
    assert sent["id"] in shell.out
    assert shell("webhooks", "redeliver", sent["id"]) == 0
    assert shell.out.strip() == sent["id"]
    assert shell("webhooks", "redeliver", sent["id"]) == 1
    assert "still on its way" in shell.err
    page = shell.store(lambda store: store.reads.find(QueueRef("default", QUEUE), Query()))
    assert [job.drive for job in page.jobs] == [2]


def test_a_webhook_is_paused_and_resumed(shell: Shell) -> None:
    hook = add(shell)

    assert shell.json("webhooks", "pause", hook, "--reason", "moving")["paused"] == "moving"
    assert "paused" not in shell.json("webhooks", "resume", hook)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["add", "http://hooks.example/"],
            "url: found 'http://hooks.example/', wanted a url that begins with",
        ),
        (["add", "https://127.0.0.1/"], "an address on the public internet; this one is loopback"),
        (["add", URL, "--type", "job.started"], "types: found 'job.started'"),
        (["add", URL, "--queue", "a b"], "queues: found 'a b'"),
        (["add", URL, "--allow", "x"], "egress.allow: found 'x'"),
        (["deliveries", "--state", "gone"], "--state: found 'gone'"),
    ],
)
def test_what_cannot_be_is_one_line(shell: Shell, arguments: list[str], said: str) -> None:
    add(shell)

    assert shell("webhooks", *arguments) == 2
    assert said in shell.err
    assert shell.err.count("\n") == 1


def test_leave_to_go_inwards_comes_from_the_settings(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_EGRESS_ALLOW", "127.0.0.1")

    assert shell("webhooks", "add", "http://127.0.0.1:8080/", "--plain") == 0


FIRST, SECOND = (base64.b64encode(bytes(range(at, at + 32))).decode() for at in (0, 32))


def secrets_check(document: dict[str, Any]) -> dict[str, Any]:
    [check] = [each for each in document["checks"] if each["name"] == "webhook secrets"]
    return dict(check)


def test_secrets_are_sealed_and_doctor_says_how(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shell.json("webhooks", "add", URL)
    assert made["secret"].removeprefix("whsec_").encode() in _bytes(shell)
    told = secrets_check(shell.json("doctor"))
    assert told["seen"] == "0 sealed, 1 in clear: set PENSTOCK_SECRET_KEY to seal them"
    assert shell("webhooks", "reseal") == 2
    assert "set PENSTOCK_SECRET_KEY" in shell.err

    monkeypatch.setenv("PENSTOCK_SECRET_KEY", FIRST)
    assert "penstock webhooks reseal" in secrets_check(shell.json("doctor", code=1))["findings"][0]
    assert shell("webhooks", "reseal") == 0
    assert shell.out == "1 webhooks of 1 tenants were encrypted again\n"
    assert secrets_check(shell.json("doctor"))["seen"] == "1 sealed, 0 in clear"

    monkeypatch.setenv("PENSTOCK_SECRET_KEY", SECOND)
    assert made["id"] in secrets_check(shell.json("doctor", code=1))["findings"][0]
    assert shell("webhooks", "reseal") == 1
    assert "is sealed with the key" in shell.err
    assert FIRST not in shell.err
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", f"{SECOND}, {FIRST}")
    assert shell.json("webhooks", "reseal", "--tenant", "default") == {"resealed": {"default": 1}}
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", SECOND)
    assert shell.json("doctor")["healthy"] is True


def _bytes(shell: Shell) -> bytes:
    return b"".join(each.read_bytes() for each in shell.directory.glob("jobs.db*"))
