"""Writers on every store: each row is one job, however often its task is run."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest

from penstock.core.errors import ConfigError, QueueFullError, StoreUnavailableError, UnknownQueueError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.states import State
from penstock.spark.errors import BadRowError
from penstock.stores.protocol import Store
from tests.spark.conftest import SparkPlace
from tests.spark.sink_kit import (
    QUEUE,
    Sink,
    Stumble,
    at_place,
    jobs_of,
    numbers,
    numbers_in,
    quarantined,
    rows,
    stumbling,
)


def test_each_row_becomes_one_job(place: SparkPlace) -> None:
    """With its arguments, its options and a key."""
    done = Sink(place).write(rows(n=[1, 2], to=["ada", None], _priority=[9, None]))

    assert (done.rows, done.applied, done.already) == (2, 2, 0)
    first, second = sorted(place.run(jobs_of), key=lambda job: job.payload)
    assert (first.payload, first.priority, first.task) == (b'{"n":1,"to":"ada"}', 9, "send")
    assert (second.payload, second.priority) == (b'{"n":2,"to":null}', 5)
    assert first.idempotency_key != second.idempotency_key


def test_a_task_that_is_run_again_enqueues_nothing_twice(place: SparkPlace) -> None:
    """Neither after it failed halfway nor after it ended: partitions are as they were, or cut otherwise."""
    parts = numbers(range(250), range(250, 400))
    sink = Sink(place, chunk="70")
    writer = sink.writer(parts)
    for number, part in enumerate(parts):
        with at_place(number):
            for after in (0, 1, len(part)):
                with pytest.raises(Stumble):
                    writer.write(stumbling(part, after))
    with at_place(0):
        done = writer.write(iter(numbers(range(400))[0]))
    writer.commit([done])

    assert done.stats.applied + done.stats.already == done.stats.rows == 400
    assert done.stats.already
    assert numbers_in(place) == list(range(400))


def test_a_second_run_under_the_same_id_adds_only_what_is_new(place: SparkPlace) -> None:
    """Under another id, or with none given, rows are new."""
    Sink(place, writeId="monday").write(numbers(range(30), range(30, 50)))
    again = Sink(place, writeId="monday").write(numbers(range(60)))
    other = Sink(place, writeId="tuesday").write(numbers(range(10)))
    unnamed = [Sink(place).write(numbers(range(5))) for _ in range(2)]

    assert (again.applied, again.already) == (10, 50)
    assert (other.applied, other.already) == (10, 0)
    assert [each.applied for each in unnamed] == [5, 5]
    assert len(numbers_in(place)) == 60 + 10 + 10


def test_a_second_run_finds_jobs_that_have_ended(place: SparkPlace) -> None:
    """Keys are held for longer than jobs live."""
    Sink(place, writeId="w").write(numbers(range(3)))

    async def cancel_all(store: Store) -> None:
        await store.moves.cancel(QUEUE, [job.id for job in await jobs_of(store)])

    place.run(cancel_all)
    again = Sink(place, writeId="w").write(numbers(range(3)))

    assert (again.applied, again.already) == (0, 3)


def test_duplicates_are_enqueued_where_they_are_allowed(place: SparkPlace) -> None:
    """At least once: a task that is run again enqueues again."""
    done = Sink(place, keyColumns=None, duplicates="allow").write(numbers(range(3)), again=1)

    assert done.applied == 3
    assert numbers_in(place) == [0, 0, 1, 1, 2, 2]


def test_rows_go_to_the_queues_and_tenants_they_name(place: SparkPlace) -> None:
    """Where they name none, to those of the options."""
    Sink(place).write(rows(n=[1, 2, 3], _queue=["a", None, "a"], _tenant=["t1", None, None]))

    assert numbers_in(place, QueueRef("t1", "a")) == [1]
    assert numbers_in(place, QueueRef("default", "a")) == [3]
    assert numbers_in(place) == [2]


def test_chosen_ids_are_the_same_jobs_again(place: SparkPlace, tmp_path: Path) -> None:
    """Another row with that id is a bad one."""
    sink = Sink(place, writeId="w", quarantine=str(tmp_path))
    sink.write(rows(n=[1, 2], _id=["one", "two"]), again=1)
    done = sink.write(rows(n=[1, 7], _id=["one", "two"]))

    assert sorted(job.id for job in place.run(jobs_of)) == ["one", "two"]
    assert done.bad == {"_id": 1}


def test_an_unknown_queue_is_made_only_if_that_was_asked_for(place: SparkPlace, tmp_path: Path) -> None:
    """The queue of the options has to be there; one that a row names makes the row a bad one."""
    Sink(place).write(numbers(range(1)))
    with pytest.raises(
        UnknownQueueError, match="no queue of tenant 'default' is named 'mial': did you mean 'mail'"
    ):
        Sink(place, declare="false", queue="mial").write(numbers(range(1)))
    done = Sink(place, declare="false", quarantine=str(tmp_path)).write(
        rows(n=[5, 6], _queue=["mail", "mial"])
    )

    assert (done.applied, done.bad) == (1, {"_queue": 1})
    assert numbers_in(place) == [0, 5]
    (row,) = quarantined(tmp_path)
    assert row["field"] == "_queue"
    assert "did you mean 'mail'" in row["reason"]


def test_bad_rows_are_set_aside_exactly_once(place: SparkPlace, tmp_path: Path) -> None:
    """However often tasks are run and however the rows are cut; the others are written."""
    sink = Sink(place, writeId="w", quarantine=str(tmp_path))
    parts = [*rows(n=[1, 2], _priority=[1, 99]), *rows(n=[3, 4], _priority=[-1, 4])]
    first = sink.write(parts, again=2)
    whole = rows(n=[1, 2, 3, 4], _priority=[1, 99, -1, 4])
    second = sink.write(whole)

    assert first.bad == second.bad == {"_priority": 2}
    assert numbers_in(place) == [1, 4]
    found = quarantined(tmp_path)
    assert [msgspec.json.decode(row["row"]) for row in found] == [
        {"n": 2, "_priority": 99},
        {"n": 3, "_priority": -1},
    ]
    assert {(row["field"], row["write_id"], row["batch_id"]) for row in found} == {("_priority", "w", None)}
    assert all("wanted 0 to 9" in row["reason"] and row["at"] is not None for row in found)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_mended_rows_replace_bad_ones_however_they_are_written(place: SparkPlace, tmp_path: Path) -> None:
    """In another order of columns, with fewer of them, or with the task in an option."""
    given = {"writeId": "w", "quarantine": str(tmp_path)}
    Sink(place, **given, task=None).write(rows(n=[1], _task=["send"], _priority=[99]))
    assert len(quarantined(tmp_path)) == 1
    Sink(place, **given).write(rows(_priority=[98], n=[1]))
    assert [msgspec.json.decode(row["row"])["_priority"] for row in quarantined(tmp_path)] == [98]
    Sink(place, **given).write(rows(n=[1]))

    assert quarantined(tmp_path) == []
    assert numbers_in(place) == [1]


def test_writes_to_other_queues_under_one_id_keep_their_bad_rows(place: SparkPlace, tmp_path: Path) -> None:
    for queue in ("mail", "post"):
        Sink(place, writeId="w", quarantine=str(tmp_path), queue=queue).write(rows(n=[1], _priority=[99]))

    assert len(quarantined(tmp_path)) == 2


def test_batches_of_a_stream_have_quarantines_of_their_own(place: SparkPlace, tmp_path: Path) -> None:
    """A batch that is run again replaces its own rows and no other's."""
    sink = Sink(place, writeId="w", quarantine=str(tmp_path))
    for batch_id in (1, 11, 1):
        sink.write(rows(n=[batch_id], _priority=[99]), batch_id=batch_id)

    assert [row["batch_id"] for row in quarantined(tmp_path)] == [1, 11]


def test_a_bad_row_fails_the_write_where_it_has_no_place(place: SparkPlace, tmp_path: Path) -> None:
    """The message names the column, the id of the write, and what to do."""
    bad = rows(n=[1], _priority=[99])
    for options in ({}, {"quarantine": str(tmp_path), "onBadRow": "fail"}):
        with pytest.raises(BadRowError, match=r"_priority: found 99, .*writeId=w .*quarantine=<folder>"):
            Sink(place, writeId="w", **options).write(bad)

    assert quarantined(tmp_path) == []


def test_a_key_with_other_work_makes_a_row_bad(place: SparkPlace, tmp_path: Path) -> None:
    """Within a write and between two: the first one stands."""
    sink = Sink(place, writeId="w", quarantine=str(tmp_path))
    done = sink.write(rows(n=[1, 1, 1], to=["ada", "bob", "ada"]))
    again = sink.write(rows(n=[1], to=["eve"]))

    assert (done.applied, done.already, done.bad) == (1, 1, {"_idempotency_key": 1})
    assert again.bad == {"_idempotency_key": 1}
    assert [job.payload for job in place.run(jobs_of)] == [b'{"n":1,"to":"ada"}']
    assert "is held in queue 'mail' by job" in quarantined(tmp_path)[0]["reason"]


def test_a_queue_where_keys_take_turns_needs_them(place: SparkPlace, tmp_path: Path) -> None:
    """A row without one is bad, as a call would be."""

    async def declare(store: Store) -> None:
        await store.queues.declare(QUEUE, Declaration(mode=Mode.KEYED))

    place.run(declare)
    done = Sink(place, quarantine=str(tmp_path)).write(rows(n=[1, 2], _key=["k", None]))

    assert (done.applied, done.bad) == (1, {"_key": 1})
    assert quarantined(tmp_path)[0]["field"] == "_key"


def test_a_full_queue_is_waited_for_and_then_fails_the_task(place: SparkPlace) -> None:
    """What was enqueued stays, and a second run enqueues the rest once there is room."""

    async def declare(store: Store) -> None:
        await store.queues.declare(QUEUE, Declaration(max_length=3))

    async def make_room(store: Store) -> None:
        await store.moves.cancel(
            QUEUE, [job.id for job in await jobs_of(store) if job.state is State.PENDING]
        )

    place.run(declare)
    with pytest.raises(QueueFullError, match=r"'mail' was full for 0.2 s.*writeId=w"):
        Sink(place, writeId="w", retryTimeout="0.2").write(numbers(range(5)))
    assert numbers_in(place) == [0, 1, 2]
    place.run(make_room)
    Sink(place, writeId="w", retryTimeout="0.2").write(numbers(range(5)))

    assert numbers_in(place) == [0, 1, 2, 3, 4]


def test_room_that_is_made_while_it_waits_is_used(place: SparkPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause is followed by another call."""

    async def declare(store: Store) -> None:
        await store.queues.declare(QUEUE, Declaration(max_length=2))

    async def make_room(_: float) -> None:
        async with place.open() as store:
            waiting = [job.id for job in await jobs_of(store) if job.state is State.PENDING]
            await store.moves.cancel(QUEUE, waiting)

    place.run(declare)
    # There alone: a store that rests between its calls must not make room too.
    monkeypatch.setattr("penstock.spark.sink.enqueueing.asyncio", SimpleNamespace(sleep=make_room))
    done = Sink(place).write(numbers(range(7)))

    assert done.applied == 7
    assert numbers_in(place) == list(range(7))


def test_a_dry_run_counts_and_writes_nothing(place: SparkPlace, tmp_path: Path) -> None:
    """Neither jobs nor queues nor bad rows; a report says what it found."""
    given = {"dryRun": "true", "quarantine": str(tmp_path / "bad"), "report": str(tmp_path / "report")}
    place.run(lambda store: store.queues.open_queue(QueueRef("default", "other")))
    done = Sink(place, **given).write(rows(n=[1, 2, 3], _priority=[1, 99, None]))

    assert (done.rows, done.applied, done.bad) == (3, 2, {"_priority": 1})
    assert place.run(lambda store: store.queues.find_queue(QUEUE)) is None
    assert quarantined(tmp_path / "bad") == []
    (report,) = (tmp_path / "report").iterdir()
    told = msgspec.json.decode(report.read_bytes())
    assert (told["dry_run"], told["rows"], told["bad"]) == (True, 3, {"_priority": 1})


def test_a_report_adds_up_what_became_of_all_rows(place: SparkPlace, tmp_path: Path) -> None:
    """Applied and already there together are every good row, however often tasks were run."""
    Sink(place, writeId="w", report=str(tmp_path)).write(numbers(range(5), range(5, 9)), again=1)

    (report,) = tmp_path.iterdir()
    told = msgspec.json.decode(report.read_bytes())
    assert told["applied"] + told["already"] == told["rows"] == 9
    assert (told["operation"], told["write_id"]) == ("enqueue", "w")


def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    """Neither of a store that is away nor of a writer that is shown."""
    for url in ("redis://:hunter2@127.0.0.1:1/0", "postgresql://me:hunter2@127.0.0.1:1/jobs"):
        sink = Sink(SparkPlace("none", url), retryTimeout="0.1")
        with pytest.raises(StoreUnavailableError) as caught:
            sink.write(numbers(range(1)))

        shown = f"{caught.value} {caught.value!r} {sink.options!r} {sink.writer(numbers(range(1)))!r}"
        assert "hunter2" not in shown


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    """Unless queues may be declared: then the store may be new as well."""
    place = SparkPlace("sqlite", f"sqlite:///{tmp_path / 'jobs.db'}")
    with pytest.raises(ConfigError, match="no such file"):
        Sink(place, declare="false").write(numbers(range(1)))
    Sink(place).write(numbers(range(1)))

    assert numbers_in(place) == [0]


def test_large_payloads_go_in_several_chunks(place: SparkPlace) -> None:
    """None is larger than a store takes in one step."""
    parts = rows(n=list(range(6)), body=pa.array(["x" * 400_000] * 6))
    done = Sink(place).write(parts)

    assert done.applied == 6
    assert numbers_in(place) == list(range(6))
