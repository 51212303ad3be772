"""`doctor` finds nothing in a healthy store, and what is wrong in one that is not."""

import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from penstock.cli.doctor.store_checks import examine_persistence
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.stores.protocol import Store
from penstock.stores.values import Durability, StoredSchedule, StoreInfo, WorkerEntry
from tests.cli.conftest import MAIL, Shell


@pytest.fixture(autouse=True)
def worker(shell: Shell, request: pytest.FixtureRequest) -> None:
    """Somebody serves the queue, unless a test is about nobody doing so."""
    if "unserved" not in request.fixturenames:
        shell.register_worker("mail")


@pytest.fixture
def unserved() -> None:
    """No worker is registered."""


def names(document: dict[str, list[dict[str, object]]]) -> list[object]:
    return [check["name"] for check in document["checks"] if check.get("findings")]


def test_a_store_with_all_kinds_of_jobs_is_healthy(shell: Shell) -> None:
    shell.enqueue("a", "b", "c", "d")
    shell.settle("complete")
    shell.settle("retry")
    shell.settle("fail")
    shell.claim()
    shell.dead("f")
    shell.enqueue("e", delay_ms=60_000)

    assert shell.json("doctor")["healthy"] is True


@pytest.mark.usefixtures("unserved")
def test_jobs_that_wait_without_a_worker_are_a_finding(shell: Shell) -> None:
    shell.enqueue("a", "b")

    assert names(shell.json("doctor", code=1)) == ["workers"]
    assert shell("doctor") == 1
    assert re.search(r"2 jobs wait, the oldest for .*, and no live worker serves the queue", shell.out)

    shell("queues", "pause", "mail")
    assert shell.json("doctor")["healthy"] is True
    shell("queues", "resume", "mail")
    shell.register_worker("web")
    assert names(shell.json("doctor", code=1)) == ["workers"]
    shell.register_worker("mail")
    assert shell.json("doctor")["healthy"] is True


@pytest.mark.usefixtures("unserved")
def test_jobs_that_somebody_claims_without_being_registered_are_served(shell: Shell) -> None:
    shell.enqueue("a", "b")
    shell.settle("complete")

    assert shell.json("doctor")["healthy"] is True


def test_tasks_that_no_live_worker_knows_are_named(shell: Shell) -> None:
    shell.enqueue("a", "b", task="resize")
    shell.enqueue("c", task="send")
    shell.settle("send back", 3)

    assert shell("doctor") == 1
    assert re.search(
        r"unknown tasks of queue mail: 2 jobs of task 'resize' were returned .* no live worker", shell.out
    )
    assert "'send'" not in shell.out


@pytest.mark.usefixtures("unserved")
def test_a_worker_of_more_queues_than_its_entry_names_may_serve_any(shell: Shell) -> None:
    entry = WorkerEntry("w1", "here", 1, "1", {"web": 1}, ("send",), more_queues=3, more_tasks=1)
    shell.store(lambda store: store.workers.register_worker("default", entry, 600_000))
    shell.enqueue("a")
    shell.enqueue("b", task="resize")
    shell.settle("send back")

    assert shell.json("doctor")["healthy"] is True


def test_at_eighty_columns_no_word_is_lost(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.enqueue("a")
    monkeypatch.setenv("COLUMNS", "80")

    assert shell("doctor") == 0

    assert "…" not in shell.out
    assert max(map(len, shell.out.splitlines())) <= 80
    words = {word for line in shell.out.splitlines() for word in line.split()}
    assert {"seen", "seccomp:", "filtered", "durability"} <= words


@pytest.mark.parametrize(
    ("durability", "findings"),
    [
        (Durability.PROCESS, 1),
        (Durability.SERVER, 0),
        (Durability.POWER, 0),
        (Durability.REPLICATED, 0),
    ],
)
def test_a_server_that_keeps_nothing_on_disk_is_a_finding(durability: Durability, findings: int) -> None:
    (check,) = examine_persistence(StoreInfo("redis", "redis://h", durability, "Valkey 9", 1, 0))

    assert len(check.findings) == findings


def test_an_empty_store_is_healthy(shell: Shell) -> None:
    shell.store(lambda store: store.health.info())

    document = shell.json("doctor")

    assert document["healthy"] is True
    assert document["store"]["kind"] == "sqlite"
    assert shell("doctor") == 0
    assert shell.out.endswith("healthy\n")


def test_what_permissions_rest_on_is_shown(shell: Shell) -> None:
    shell.store(lambda store: store.health.info())

    found = {each["name"]: each for each in shell.json("doctor")["sandbox"]}

    assert list(found) == ["system", "seccomp", "landlock", "namespaces", "cgroup", "user"]
    assert all(each["seen"] and each["use"] for each in found.values())
    assert shell("doctor") == 0
    assert "landlock: files, TCP" in shell.out


def test_a_turned_clock_is_a_finding(shell: Shell) -> None:
    shell.store(lambda store: store.clock.advance_clock(3_000))

    document = shell.json("doctor", code=1)

    assert names(document) == ["clock offset", "host and store clock"]


def test_leases_that_nobody_recovers_are_a_finding(shell: Shell) -> None:
    shell.enqueue("a")
    shell.claim()
    shell.store(lambda store: store.clock.advance_clock(60_000))

    assert "leases" in names(shell.json("doctor", code=1))
    assert shell("doctor") == 1
    assert re.search(r"1 leases expired up to \d+ s ago and were not recovered", shell.out)


def test_a_job_taken_out_of_the_file_is_a_finding(shell: Shell) -> None:
    shell.enqueue("a", "b")
    with closing(sqlite3.connect(shell.file, isolation_level=None)) as base:
        base.execute("DELETE FROM job WHERE id = 'a'")

    document = shell.json("doctor", code=1)

    assert names(document) == ["history"]
    assert shell("doctor") == 1
    assert "not-in-store: queue mail, job a, pending by the log, and not in the store" in shell.out
    assert shell("doctor", "--no-history") == 0


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM event WHERE seq > 1", "seq-gap: queue mail, event 3, 2 to 3 are missing"),
        ("DELETE FROM event WHERE seq = 2", "seq-gap: queue mail, job c, event 3, 3 came where 2 was next"),
        ("UPDATE event SET jobs = 'nope', job = NULL WHERE seq = 2", "event 2 of queue mail cannot be read"),
        ("UPDATE event SET version = 'x' WHERE seq = 2", "event 2 of queue mail cannot be read"),
    ],
)
def test_events_that_are_missing_or_damaged_are_a_finding(shell: Shell, statement: str, said: str) -> None:
    shell.enqueue("a", "b", "c")
    with closing(sqlite3.connect(shell.file, isolation_level=None)) as base:
        base.execute(statement)

    assert any(each.startswith(said) for each in findings(shell))
    assert "history" in names(shell.json("doctor", code=1))


def test_a_trimmed_log_is_checked_from_where_it_begins(shell: Shell) -> None:
    shell.enqueue("a", "b")
    shell.settle("complete", 2)
    shell.store(lambda store: store.events.trim(MAIL, through=3))

    document = shell.json("doctor")

    (history,) = [check for check in document["checks"] if check["name"] == "history"]
    assert history["seen"].endswith("the log begins at 4")


def test_a_reader_that_holds_back_trimming_is_mentioned_and_no_fault(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.enqueue("a", "b", "c")
    shell.store(lambda store: store.readers.register_reader(MAIL, "slow", 1))
    shell.store(lambda store: store.readers.register_reader(MAIL, "quick", 3))
    assert _readers(shell.json("doctor"))["seen"] == "2 registered"
    with monkeypatch.context() as patched:
        patched.setattr("penstock.cli.doctor.reader_checks.EVENTS_KEPT", 1)
        by_count = _readers(shell.json("doctor"))
    monkeypatch.setattr("penstock.cli.doctor.reader_checks.EVENTS_AGE", -60.0)
    by_age = _readers(shell.json("doctor"))

    assert by_count["seen"] == "2 registered; slow holds back trimming, 2 events behind"
    assert by_age == by_count


def test_events_that_were_cut_ahead_of_a_reader_are_a_finding(shell: Shell) -> None:
    shell.enqueue("a", "b", "c")
    shell.store(lambda store: store.readers.register_reader(MAIL, "slow", 0))
    shell.store(lambda store: store.events.trim(MAIL, through=2))

    (finding,) = findings(shell)
    assert finding == "events 1 to 2 were trimmed before reader 'slow' had read them"


def _readers(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = [check for check in document["checks"] if check["name"] == "readers of events"]
    return dict(found)


KEYED = Declaration(mode=Mode.DYNAMIC, key_limit=3, max_active=4, max_length=9)


def findings(shell: Shell) -> list[str]:
    """What is found apart from the clock, which tests turn."""
    document = shell.json("doctor", code=1)
    return [
        finding
        for check in document["checks"]
        if "clock" not in check["name"]
        for finding in check.get("findings", [])
    ]


def test_a_store_with_limits_flows_and_schedules_is_healthy(shell: Shell) -> None:
    shell.store(lambda store: store.queues.declare(MAIL, KEYED))
    shell.enqueue("a", "b", "c", "d", key="ada")
    shell.claim(3)
    shell.enqueue("e", key="bob", parents=(JobRef("mail", "top"),))
    shell.enqueue("top", key="bob", awaits=(JobRef("mail", "e"),))
    shell.store(lambda store: store.schedules.put_schedule(StoredSchedule(MAIL, "nightly", b"{}", 2**42)))

    assert shell.json("doctor")["healthy"] is True


def test_more_running_than_allowed_is_a_finding(shell: Shell) -> None:
    shell.store(lambda store: store.queues.declare(MAIL, KEYED))
    shell.enqueue("a", "b", "c", key="ada")
    shell.enqueue("d", "e", key="bob")
    shell.claim(5)
    lowered = Declaration(version=2, mode=Mode.DYNAMIC, key_limit=3, max_active=2, max_length=9)
    shell.store(lambda store: store.queues.declare(MAIL, lowered))
    shell.store(lambda store: store.queues.set_key_rule(MAIL, "ada", KeyRule(limit=1)))

    total, key = findings(shell)

    assert total.startswith("4 jobs run and max_active is 2 (version 2 may have lowered the limit")
    assert key.startswith("2 jobs of key 'ada' run and its limit is 1")


def test_more_waiting_than_the_length_is_no_fault(shell: Shell) -> None:
    """What was let in comes back by retries and releases, and a limit may be lowered."""
    shell.enqueue("a", "b", "c")
    shell.store(lambda store: store.queues.declare(MAIL, Declaration(max_length=2)))

    checks = shell.json("doctor")["checks"]
    assert ["3 of 2 wait" in check["seen"] for check in checks if check["name"] == "limits"] == [True]


def test_a_key_that_is_passed_over_is_a_finding(shell: Shell) -> None:
    shell.store(lambda store: store.queues.declare(MAIL, Declaration(mode=Mode.KEYED)))
    shell.enqueue("a", key="ada")
    shell.enqueue(*(f"b{number}" for number in range(5)), key="bob")
    with closing(sqlite3.connect(shell.file, isolation_level=None)) as base:
        base.execute("DELETE FROM lane WHERE key = 'ada'")
    for _ in range(4):
        shell.settle("complete")

    assert any(
        "key 'ada' has waiting jobs and a free slot, and was passed over" in each for each in findings(shell)
    )


def test_relays_that_nobody_carries_are_a_finding(shell: Shell) -> None:
    shell.enqueue("a", parents=(JobRef("web", "top"),))
    shell.settle("complete")
    assert shell("doctor") == 0
    shell.store(lambda store: store.clock.advance_clock(90_000))

    (finding,) = findings(shell)

    assert re.match(
        r"1 relay entries wait for delivery, the oldest for \d min( \d+ s)?: no worker runs", finding
    )


def test_a_blocked_job_that_nothing_will_unblock_is_a_finding(shell: Shell) -> None:
    async def flow(store: Store) -> None:
        top, child = JobRef("mail", "top"), JobRef("mail", "a")
        jobs = [
            NewJob(id="top", nonce="n", task="send", payload=b"{}", awaits=(child,)),
            NewJob(id="a", nonce="n", task="send", payload=b"{}", parents=(top,)),
        ]
        await store.moves.enqueue(MAIL, jobs)

    shell.store(flow)
    shell.settle("complete")
    assert shell("doctor") == 0
    shell.store(lambda store: store.flows.delete_relay_entries(MAIL, [1]))

    assert findings(shell) == ["job top would wait for ever: no relay entry will report the end of mail/a"]
    ending = ChildEnding("top", JobRef("mail", "a"), None)
    shell.store(lambda store: store.flows.child_ended(MAIL, [ending]))
    assert shell("doctor") == 0


def test_a_schedule_that_nobody_fires_is_a_finding(shell: Shell) -> None:
    async def plan(store: Store) -> None:
        now = await store.clock.now()
        for name, ago in (("late", 30_000), ("due", 1_000)):
            await store.schedules.put_schedule(StoredSchedule(MAIL, name, b"{}", now - ago))
        await store.schedules.put_schedule(StoredSchedule(MAIL, "paused", b"{}", now - 90_000, paused=True))

    shell.store(plan)

    (finding,) = findings(shell)

    assert finding.startswith("schedule 'late' of queue 'mail' was due at ")
    assert finding.endswith(": no worker or scheduler runs on this queue")


def test_a_schedule_that_a_full_queue_holds_back_says_so(shell: Shell) -> None:
    async def plan(store: Store) -> None:
        await store.queues.declare(MAIL, Declaration(max_length=1))
        await store.schedules.put_schedule(
            StoredSchedule(MAIL, "late", b"{}", await store.clock.now() - 30_000)
        )

    shell.store(plan)
    shell.enqueue("a")

    (finding,) = findings(shell)

    assert finding.endswith(": the queue is full (1 wait and max_length is 1)")


def test_doctor_names_a_file_that_others_can_read(shell: Shell) -> None:
    shell.enqueue("a")
    shell.directory.chmod(0o755)
    assert shell.json("doctor")["healthy"] is True
    shell.file.chmod(0o644)

    document = shell.json("doctor", code=1)

    [check] = [each for each in document["checks"] if each.get("findings")]
    assert check["name"] == "files"
    assert "jobs.db: other users of this machine can read it (mode 0644)" in check["findings"][0]
    assert "chmod o= " in check["findings"][0]


def test_a_folder_that_others_cannot_enter_hides_its_files(shell: Shell) -> None:
    shell.enqueue("a")
    shell.file.chmod(0o644)
    shell.directory.chmod(0o700)

    assert shell.json("doctor")["healthy"] is True


@pytest.mark.parametrize(
    "damage", ["seq = 'many'", "declaration = '{'", "trimmed = x'00'", "paused_at = 'soon'"]
)
def test_a_damaged_queue_is_a_finding_and_the_others_are_checked(shell: Shell, damage: str) -> None:
    shell.enqueue("a", queue=QueueRef("default", "web"))
    shell.enqueue("a")
    with closing(sqlite3.connect(shell.file, isolation_level=None)) as base:
        base.execute(f"UPDATE queue SET {damage} WHERE name = 'web'")

    assert shell("doctor") == 1
    assert "bug in Penstock" not in shell.err
    assert "of queue web: " in shell.out
    checks = shell.json("doctor", code=1)["checks"]
    of_mail = [check for check in checks if check.get("queue") == "mail"]
    assert "history" in {check["name"] for check in of_mail}
    assert not any(check.get("findings") for check in of_mail)


@pytest.mark.parametrize("damage", ["deadline = NULL", "state = x'ff'"])
def test_a_check_that_meets_a_damaged_row_says_so_and_the_others_are_made(shell: Shell, damage: str) -> None:
    shell.enqueue("a", "b")
    shell.claim()
    with closing(sqlite3.connect(shell.file, isolation_level=None)) as base:
        base.execute(f"UPDATE job SET {damage} WHERE id = 'a'")

    assert shell("doctor") == 1
    assert "bug in Penstock" not in shell.err
    made = {check["name"] for check in shell.json("doctor", code=1)["checks"]}
    assert {"records and indexes", "leases", "counts", "relays", "readers of events"} <= made
