"""`outbox`: what waits, what was set aside, and a relay that runs until told to stop."""

import os
import signal
import sqlite3
import subprocess
import sys

from penstock import Penstock
from tests.cli.conftest import MAIL, Shell
from tests.kit.waiting import PATIENCE


def _written(shell: Shell, *names: str) -> list[str]:
    app = Penstock("sqlite:///jobs.db")
    task = app.queue("mail").task(name="send")(_send)
    base = sqlite3.connect("shop.db")
    jobs = [app.outbox().blocking.enqueue_in(base, task, name) for name in names]
    base.commit()
    base.close()
    return [job.id for job in jobs]


def _made(shell: Shell) -> None:
    shell("outbox", "sql", "--from", "sqlite:///shop.db")
    base = sqlite3.connect("shop.db")
    base.executescript(shell.out)
    base.close()


def _send(to: str) -> None: ...


def test_looking_makes_nothing(shell: Shell) -> None:
    """Neither a file nor tables."""
    assert shell("outbox", "status", "--from", "sqlite:///shop.db") == 1
    assert "there is no outbox" in shell.err
    assert not (shell.directory / "shop.db").exists()


def test_a_relay_carries_until_told_to_stop(shell: Shell) -> None:
    """SIGTERM ends it between two rounds."""
    _made(shell)
    [job] = _written(shell, "ada")
    relay = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "outbox", "run", "--from", "sqlite:///shop.db"],
        env=os.environ | {"PENSTOCK_URL": shell.url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(400):
            if shell.json("outbox", "status", "--from", "sqlite:///shop.db")["waiting"] == 0:
                break
        relay.send_signal(signal.SIGTERM)
        _, said = relay.communicate(timeout=PATIENCE)
    finally:
        relay.kill()
    found = shell.store(lambda store: store.reads.get(MAIL, [job]))

    assert relay.returncode == 0, said
    assert found[0] is not None


def test_what_was_set_aside_is_shown_and_can_wait_again(shell: Shell) -> None:
    """The exit code says that there is something."""
    _made(shell)
    base = sqlite3.connect("shop.db")
    base.execute("INSERT INTO penstock_outbox_failed VALUES (7, 'default', 'mail', '{}', 0, 'no such thing')")
    base.commit()
    base.close()
    code = shell("outbox", "status", "--from", "sqlite:///shop.db")
    shown = shell.out
    retried = shell.json("outbox", "retry", "7", "--from", "sqlite:///shop.db")
    after = shell.json("outbox", "status", "--from", "sqlite:///shop.db")

    assert code == 1
    assert "no such thing" in shown
    assert retried == {"retried": 1}
    assert (after["waiting"], after["failed"]) == (1, 0)


def test_the_tables_are_printed_for_those_who_make_them(shell: Shell) -> None:
    """In the schema that is named."""
    shell("outbox", "sql", "--from", "postgresql://127.0.0.1:1/x?schema=letters")

    assert 'CREATE TABLE IF NOT EXISTS "letters".outbox' in shell.out
    assert "penstock." not in shell.out


def test_a_store_that_is_no_database_has_no_outbox(shell: Shell) -> None:
    """Said before anything is reached."""
    assert shell("outbox", "run", "--from", "redis://127.0.0.1:1") == 2
    assert "wanted postgresql://" in shell.err
