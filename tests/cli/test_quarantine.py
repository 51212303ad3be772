"""What was damaged from outside: found by `doctor`, set aside by a repair, shown and deleted by people."""

import sqlite3
from contextlib import closing

from tests.cli.conftest import Shell


def damage(shell: Shell, statement: str) -> None:
    """Spoil something in the file."""
    with closing(sqlite3.connect(shell.file, isolation_level=None)) as base:
        assert base.execute(statement).rowcount > 0


def found(shell: Shell) -> dict[str, list[str]]:
    """The findings of `doctor`, by check."""
    document = shell.json("doctor", code=1)
    return {each["name"]: each["findings"] for each in document["checks"] if each.get("findings")}


def test_a_damaged_job_is_found_set_aside_shown_and_deleted(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    damage(shell, "UPDATE job SET options = 'nope' WHERE id = 'b'")
    [before] = found(shell)["records and indexes"]
    assert before.startswith("a record that cannot be read: ")
    assert before.endswith("(job b)")

    assert shell("doctor", "--repair") == 1
    assert "1 entries quarantined or mended" in shell.out
    after = found(shell)
    assert "records and indexes" not in after
    [finding] = after["quarantine"]
    assert "(job b): see `penstock quarantine list --queue mail`" in finding
    assert after["history"] == ["not-in-store: queue mail, job b, pending by the log, and not in the store"]

    [entry] = shell.json_lines("quarantine", "list")
    assert (entry["queue"], entry["id"]) == ("mail", "b")
    assert '"options":"nope"' in entry["record"]
    assert "payload" not in entry
    assert "payload" in shell.json("quarantine", "show", "mail", "b", "--payload")
    assert shell("quarantine", "list", "--queue", "mail") == 0
    assert "a record that cannot be read" in shell.out

    assert shell.json("quarantine", "delete", "mail", "b", "--yes") == {"queue": "mail", "deleted": 1}
    assert shell.json_lines("quarantine", "list") == []
    # Jobs wait and no worker runs: that is all there is to say.
    assert found(shell).keys() == {"workers"}


def test_all_entries_of_a_queue_are_deleted_at_once(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    damage(shell, "UPDATE job SET payload = x'00' WHERE id <> 'b'")
    assert shell("doctor", "--repair", "--no-history") == 1

    assert shell("quarantine", "delete", "mail", "--all", "--yes") == 0
    assert shell.out == "deleted 2 entries of the quarantine of queue 'mail'\n"
    assert found(shell).keys() == {"workers"}


def test_what_is_deleted_has_to_be_named(shell: Shell) -> None:
    shell.enqueue("a")

    assert shell("quarantine", "delete", "mail") == 2
    assert "ids of entries, or --all" in shell.err
    assert shell("quarantine", "show", "mail", "nobody") == 2
    assert "penstock quarantine list --queue mail" in shell.err
    assert shell("quarantine", "delete", "mail", "nobody", "--yes") == 1


def test_an_event_that_cannot_be_read_is_named_and_the_rest_is_checked(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    damage(shell, "UPDATE event SET move = 'nope' WHERE seq = 2")
    damage(shell, "DELETE FROM event WHERE seq = 3")

    findings = found(shell)["history"]
    assert any(each.startswith("event 2 of queue mail cannot be read") for each in findings)
