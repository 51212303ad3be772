"""`queues declare|limits|keys|drain`."""

import re

import pytest

from penstock.cli.queues.rate_text import rate_of
from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode, Rate
from penstock.core.moves import Complete
from penstock.stores.sqlite.moves import SqliteMoves
from penstock.stores.sqlite.reads import SqliteReads
from penstock.testing.conformance.parts import Part
from tests.cli.conftest import Shell
from tests.conformance.having import shared

CALLS = QueueRef("default", "calls")


def keyed(shell: Shell, *more: str) -> None:
    assert shell("queues", "declare", "calls", "--mode", "keyed", *more) == 0, shell.err


@shared(Part.KEYS, Part.LIMITS)
def test_what_is_declared_is_kept_and_shown(shell: Shell) -> None:
    keyed(
        shell,
        *("--key-limit", "2", "--max-active", "10", "--max-length", "500"),
        *("--rate", "5/s", "--burst", "3", "--key-rate", "60/m", "--key-burst", "2"),
    )

    info = shell.store(lambda store: store.queues.find_queue(CALLS))
    assert info is not None
    assert info.declaration == Declaration(
        mode=Mode.KEYED,
        key_limit=2,
        max_active=10,
        max_length=500,
        rate=Rate(5, 1_000, 3),
        key_rate=Rate(60, 60_000, 2),
    )
    document = shell.json("queues", "limits", "calls")
    assert (document["active"], document["waiting"]) == (0, 0)
    assert document["declaration"]["key_limit"] == 2
    assert shell("queues", "limits", "calls") == 0
    assert "5/s, 3 at once" in shell.out
    assert "max active  10 (0 running)" in shell.out


@shared(Part.KEYS, Part.LIMITS)
def test_a_rate_that_is_used_up_is_shown_with_when_it_goes_on(shell: Shell) -> None:
    assert shell("queues", "declare", "mail", "--rate", "1/m") == 0, shell.err
    fresh = shell.json("queues", "limits", "mail")
    shell.enqueue("a")
    shell.claim()

    assert "held_until" not in fresh
    assert "held_until" in shell.json("queues", "limits", "mail")
    assert shell("queues", "limits", "mail") == 0
    assert re.search(r"1/min \(used up; the next job may start in 5\d s\)", shell.out)


@shared(Part.KEYS, Part.LIMITS)
def test_a_change_needs_a_higher_version(shell: Shell) -> None:
    keyed(shell)

    assert shell("queues", "declare", "calls", "--mode", "keyed", "--key-limit", "3") == 1
    assert "Raise the version to change it" in shell.err
    keyed(shell, "--key-limit", "3", "--version", "2")
    keyed(shell, "--key-limit", "9")
    assert "version 1 is older than the stored version, which stays in force" in shell.err
    assert shell.json("queues", "limits", "calls")["declaration"]["key_limit"] == 3


def test_a_queue_that_was_never_declared_says_so(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("queues", "limits", "mail") == 0
    assert shell.out == "queue 'mail' is global and without limits: it was never declared\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "fast"], "--rate: found 'fast', wanted a number per time, such as 5/s"),
        (["--rate", "5/moon"], "--rate: found '5/moon'"),
        (["--rate", "0/s"], "rate.count: found 0"),
        (["--burst", "3"], "--burst: found 3, wanted --rate with it"),
        (["--key-burst", "3"], "--key-burst: found 3, wanted --key-rate with it"),
        (["--key-limit", "2"], "keyed or dynamic, as there are limits per key"),
        (["--max-active", "0"], "max_active: found 0"),
        (["--mode", "random"], "Invalid value for '--mode'"),
    ],
)
def test_what_cannot_be_declared_is_one_line(shell: Shell, arguments: list[str], said: str) -> None:
    assert shell("queues", "declare", "calls", *arguments) == 2
    assert said in shell.err
    assert shell.err.count("\n") == 1


@shared(Part.KEYS, Part.LIMITS)
def test_keys_are_shown_with_what_waits_and_runs(shell: Shell) -> None:
    keyed(shell, "--key-limit", "1", "--key-rate", "1/h")
    shell.enqueue("a1", "a2", queue=CALLS, key="ada")
    shell.enqueue("b1", queue=CALLS, key="bob")
    shell.settle("complete", queue=CALLS)
    shell.claim(queue=CALLS)

    ada, bob = shell.json_lines("queues", "keys", "calls")

    assert (ada["key"], ada["waiting"], ada["active"], ada["limit"], ada["weight"]) == ("ada", 1, 0, 1, 1)
    assert ada["held_until"].endswith("Z")
    assert (bob["key"], bob["waiting"], bob["active"]) == ("bob", 0, 1)
    assert shell("queues", "keys", "calls") == 0
    assert "(in 59 min 5" in shell.out


@shared(Part.KEYS, Part.LIMITS)
def test_a_key_gets_a_rule_and_loses_it(shell: Shell) -> None:
    assert shell("queues", "declare", "calls", "--mode", "dynamic", "--key-limit", "2") == 0

    (ada,) = shell.json_lines("queues", "keys", "calls", "--set", "ada", "--limit", "7", "--weight", "3")
    assert (ada["limit"], ada["weight"]) == (7, 3)
    (ada,) = shell.json_lines("queues", "keys", "calls", "--set", "ada", "--limit", "6")
    assert (ada["limit"], ada["weight"]) == (6, 3)
    assert shell.json_lines("queues", "keys", "calls", "--unset", "ada") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--limit", "3"], "--limit: found 3, wanted --set KEY with it"),
        (["--set", "ada"], "--set: found 'ada', wanted --limit or --weight with it"),
        (["--set", "ada", "--limit", "2"], "a keyed queue has one limit for all keys"),
        (["--set", "ada", "--weight", "0"], "weight: found 0"),
        (["--set", "ada", "--weight", "1", "--unset", "bob"], "either --set or --unset"),
    ],
)
def test_a_rule_that_cannot_be_is_one_line(shell: Shell, arguments: list[str], said: str) -> None:
    keyed(shell)

    assert shell("queues", "keys", "calls", *arguments) == 2
    assert said in shell.err


def test_a_global_queue_has_no_keys(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("queues", "keys", "mail") == 2
    assert "wanted a keyed or dynamic queue; this one is global" in shell.err


@shared(Part.KEYS, Part.LIMITS)
def test_drain_returns_once_nothing_is_live(shell: Shell) -> None:
    shell.enqueue("a")
    shell.settle("complete")

    assert shell.json("queues", "drain", "mail") == {"queue": "mail", "drained": True, "left": {}}
    assert shell("queues", "drain", "mail") == 0
    assert shell.out == "queue 'mail' has no live job left\n"


def test_drain_waits_for_what_is_live(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.enqueue("a")
    counts = SqliteReads.counts

    async def end_after_a_look(reads: SqliteReads, queue: QueueRef) -> object:
        found = await counts(reads, queue)
        moves = SqliteMoves(reads._backend)
        for job in (await moves.claim(queue, worker="w", limit=1, lease_ms=1_000)).jobs:
            await moves.settle(queue, [Complete(job.id, job.token)])
        return found

    monkeypatch.setattr(SqliteReads, "counts", end_after_a_look)

    assert shell("queues", "drain", "mail", "--timeout", "1m") == 0
    assert shell.err == "1 left: 1 pending\n"


@shared(Part.KEYS, Part.LIMITS)
def test_drain_gives_up_in_time_and_says_what_is_left(shell: Shell) -> None:
    shell.enqueue("a")
    assert shell("queues", "pause", "mail") == 0

    assert shell.json("queues", "drain", "mail", "--timeout", "0", code=1)["left"] == {"pending": 1}
    assert shell("queues", "drain", "mail", "--timeout", "0") == 1
    assert shell.out == "queue 'mail' is not empty after 0: 1 pending\n"
    assert "is paused: its waiting jobs stay" in shell.err


def test_rates_are_read_and_said() -> None:
    assert rate_of("--rate", None) is None
    assert rate_of("--rate", " 5 / S ") == Rate(5, 1_000)
    assert rate_of("--rate", "3/1m30s", 2) == Rate(3, 90_000, 2)
    assert [str(Rate(1, 200)), str(Rate(1, 86_400_000, 4))] == ["5/s", "1/d, 4 at once"]
    with pytest.raises(OptionError, match="such as 5/s"):
        rate_of("--rate", "5")
