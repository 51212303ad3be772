"""The limits of calls as `worker` and `scheduler` take them: by flag, by variable, and from the file."""

from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.core.errors import ConfigError
from tests.cli.conftest import Shell, use_module

APP = """
from penstock import Penstock

app = Penstock("sqlite:///jobs.db")
app.queue("mail")
"""


@pytest.fixture
def handed_over(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command hands to the app or to the scheduler, which does not start."""
    found: dict[str, Any] = {}

    def note(*args: Any, **options: Any) -> None:
        found.update(options)
        raise ConfigError("enough was seen")

    monkeypatch.setattr(Penstock, "worker", note)
    monkeypatch.setattr(Penstock, "scheduler", note)
    monkeypatch.setattr("penstock.cli.scheduler_command.TimeKeeper", note)
    monkeypatch.setenv("PENSTOCK_WORKER_RECOVER_LIMIT", "8")
    Path("penstock.toml").write_text("[worker]\nclaim_scan = 9\n")
    return found


def test_a_worker_is_given_its_limits(
    shell: Shell, handed_over: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_module(monkeypatch, "shop", APP)
    assert shell("worker", "shop:app", "--promote-limit", "7") == 2

    limits = {name: handed_over[name] for name in ("claim_scan", "promote_limit", "recover_limit")}
    assert limits == {"claim_scan": 9, "promote_limit": 7, "recover_limit": 8}


@pytest.mark.parametrize("app", [(), ("shop:app",)], ids=["without an app", "with an app"])
def test_a_scheduler_is_given_its_limits(
    shell: Shell, handed_over: dict[str, Any], monkeypatch: pytest.MonkeyPatch, app: tuple[str, ...]
) -> None:
    use_module(monkeypatch, "shop", APP)
    assert shell("scheduler", *app, "--promote-limit", "7") == 2

    assert (handed_over["promote_limit"], handed_over["recover_limit"]) == (7, 8)


@pytest.mark.parametrize("command", ["worker", "scheduler"])
def test_a_limit_out_of_its_bounds_is_refused_in_one_line(shell: Shell, command: str) -> None:
    assert shell(command, "--recover-limit", "10001") == 2
    assert "--recover-limit: found '10001', wanted a whole number from 1 to 10000" in shell.err
