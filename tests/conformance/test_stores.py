"""The suite itself: which stores it runs on, and that none of them stays away unnoticed."""

import pytest

from penstock.testing.conformance.parts import PARTS
from tests.conformance.stores import ALLOW_MISSING, STORES, may_be_missing
from tests.kit import postgres, valkey


def test_the_suite_runs_on_every_store() -> None:
    """On the distribution's Redis and PostgreSQL as well, wherever they are installed."""
    installed = {"redis7"} if valkey.redis_binary() else set()
    installed |= {"postgres-debian"} if postgres.debian_binaries() else set()

    named = {"memory", "sqlite", "valkey", "postgres", "remote"}

    assert {kind.name for kind in STORES} == named | installed


def test_every_store_has_the_whole_contract() -> None:
    """Keys, limits, unique jobs, flows and schedules too; none stays behind."""
    assert [kind.name for kind in STORES if kind.parts != PARTS] == []


@pytest.mark.parametrize(
    ("allowed", "ci", "expected"),
    [(None, None, False), ("1", None, True), ("1", "true", False), (None, "true", False)],
    ids=["as it is", "allowed", "allowed in CI", "in CI"],
)
def test_a_store_may_be_missing_on_a_laptop_only(
    monkeypatch: pytest.MonkeyPatch, allowed: str | None, ci: str | None, expected: bool
) -> None:
    """And only when its owner said so."""
    for name, value in ((ALLOW_MISSING, allowed), ("CI", ci)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)

    assert may_be_missing() is expected


def test_a_server_binary_tells_its_version() -> None:
    """It stands in the header of every run."""
    binary = valkey.valkey_binary()

    assert binary is not None
    assert valkey.version(binary).startswith("9.")


def test_a_postgresql_tells_its_version() -> None:
    """The one from the wheel is the newest."""
    binaries = postgres.wheel_binaries()

    assert binaries is not None
    assert postgres.version(binaries).startswith("18.")
