"""The command line on a store that is behind a service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.stores.sqlite import SqliteStore
from tests.cli.conftest import Shell
from tests.conformance.stores import Place
from tests.kit.service import token


@pytest.fixture
def far(shell: Shell, where: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Commands on the same store through a service, with the token of a tenant."""
    scheme, _, rest = where.service(lambda: SqliteStore(str(tmp_path / "jobs.db"))).partition("://")
    monkeypatch.setenv("PENSTOCK_URL", f"{scheme}://{rest.rpartition('@')[2]}")
    monkeypatch.setenv("PENSTOCK_TOKEN", token("default"))
    yield shell
    where.end_service()


def test_commands_look_and_change_through_a_service(far: Shell) -> None:
    far.dead("d")
    far.enqueue("a", "b")

    assert far("queues", "list") == 0, far.err
    assert "mail" in far.out
    assert [each["id"] for each in far.json_lines("jobs", "list", "--queue", "mail")].count("a") == 1
    assert far("jobs", "cancel", "a") == 0, far.err
    assert far("dlq", "redrive", "--yes") == 0, far.err
    assert far("events", "tail", "--queue", "mail", "--limit", "5") == 0, far.err
    assert far("doctor") == 0, far.out + far.err
    assert far("migrate", "status") == 0, far.err
    assert "where the service runs" in far.out


@pytest.mark.parametrize(
    ("text", "said"),
    [("psk_nonsense", "does not accept the token"), (token("other"), "does not let this token")],
)
def test_a_token_that_does_not_fit_is_one_line(
    far: Shell, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", text)

    assert far("queues", "list") != 0
    assert said in far.err
    assert far.err.count("\n") == 1
    assert text not in far.err


def test_a_service_that_is_not_there_is_one_line(
    far: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:9")

    assert run(["queues", "list"]) != 0
    assert capsys.readouterr().err.count("\n") == 1


def test_webhooks_are_managed_elsewhere_than_through_a_service(far: Shell) -> None:
    for command in (["list"], ["add", "https://hooks.example/in"], ["deliveries"]):
        assert far("webhooks", *command) != 0
        assert "/v1/webhooks" in far.err
        assert far.err.count("\n") == 1
