"""The scripts: how they are joined, that each is whole, and that the server gets those it lost."""

import re

import pytest
from redis.asyncio import Redis

from penstock.core.errors import StoreError
from penstock.core.events import EVENT_VERSION
from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Move
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.core.transitions import TABLE
from penstock.stores.redis import RedisStore
from penstock.stores.redis.codec.jobs import RECORD_FIELDS
from penstock.stores.redis.codec.names import NAMES
from penstock.stores.redis.keys import KEY_NAMES
from penstock.stores.redis.scripts import Scripts, loaded_sources
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job

MARK = "-- guard: "


def test_no_guard_stands_elsewhere_than_in_the_file_of_its_move() -> None:
    """And each file has those of its own row only."""
    for path, text in loaded_sources().items():
        found = {line.rpartition(MARK)[2] for line in text.splitlines() if MARK in line}
        folder, _, move = path.removesuffix(".lua").partition("/")
        wanted = TABLE[Move(move)].guards if folder == "moves" else frozenset()

        assert found == wanted, path


async def test_every_script_is_accepted_with_each_guard_dropped(operator: Redis) -> None:
    """A mutant that cannot be loaded would prove nothing."""
    sources = loaded_sources()
    for path, text in sources.items():
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if MARK in line:
                without = Scripts({path: "\n".join(lines[:number] + lines[number + 1 :])})
                for entry in _entries():
                    await operator.script_load(without.get(entry).text)


def test_an_include_is_joined_once_and_a_move_only_above_its_main_line() -> None:
    """Claim promotes on its way, and answers for itself alone."""
    text = Scripts().get("claim").text

    assert text.startswith("#!lua flags=allow-oom\n-- claim: ")
    assert text.count("local function append(") == 1
    assert text.count("local function promote(") == 1
    assert text.count("-- main") == 1


def test_names_are_filled_in_but_not_in_strings_and_comments() -> None:
    source = """
-- META's place; the job's STATE
local function moved(job, meta)
  return redis.call('HSET', META, 'STATE', job[STATE], EVENTS, job[PLACE], meta[META_SEQ])
end
return moved({}, {})
"""

    text = Scripts({"calls/moved.lua": source}).get("calls/moved").text

    assert "('HSET', KEYS[1], 'STATE', job[1], KEYS[2], job[3], meta[2])" in text
    assert "-- META's place; the job's STATE" in text


def test_no_name_stands_for_two_things() -> None:
    """Records, lanes, events and the rest have names of their own."""
    prefixed = [
        name for name in NAMES if name.split("_")[0] in {"LANE", "EVENT", "META", "CHILD", "SCHEDULE"}
    ]

    assert not set(RECORD_FIELDS) & set(KEY_NAMES)
    assert not {name.lower() for name in prefixed} & {*RECORD_FIELDS, *(set(KEY_NAMES) - {"meta"})}


def test_every_name_in_capitals_is_filled_in_or_declared_beside_it() -> None:
    """One that nobody fills in would be nothing to the server, and tell so only where it is met."""
    scripts = Scripts()
    for entry in _entries():
        code = re.sub(r"'(?:[^'\\]|\\.)*'|--.*", "", scripts.get(entry).text)
        declared = {
            name
            for names in re.findall(r"local ([A-Z_]+(?:, [A-Z_]+)*) =", code)
            for name in names.split(", ")
        }

        assert set(re.findall(r"\b[A-Z][A-Z_]+\b", code)) - declared <= {"KEYS", "ARGV"}, entry


def test_no_script_packs_or_knows_positions_outside_the_codec() -> None:
    """Moves name fields; bytes are made in the shared files."""
    for path, text in loaded_sources().items():
        if path.startswith("shared/") or path == "reads/at_once.lua":
            continue
        code = "\n".join(line.partition("--")[0] for line in text.splitlines())
        assert not re.search(r"(?:job|lane|event|meta|head|schedule|child|known|parent)\[\d+\]", code), path
        assert not re.search(r"\\\d", code), path


def test_functions_that_nobody_calls_are_left_out() -> None:
    """Also those that are called by such functions alone; what is only mentioned is not called."""
    source = """
local function used(n) return n end
local function first(n) return n end
local function second(n)
  if n == 0 then
    return first(n)
  end
  return second(n - 1)
end
-- second is mentioned here
return used('second')
"""

    text = Scripts({"calls/moved.lua": source}).get("calls/moved").text

    assert text.count("local function") == 1
    assert "local function used(n) return n end" in text
    assert "first" not in text
    assert text.endswith("-- second is mentioned here\nreturn used('second')\n")


def test_a_frame_is_a_function_around_what_follows() -> None:
    text = Scripts({"calls/moved.lua": "local n = 1\n-- frame\nreturn n"}).get("calls/moved").text

    assert text == "#!lua\nlocal n = 1\nreturn (function()\nreturn n\nend)()\n"


def test_a_missing_include_says_what_is_missing() -> None:
    """A package that was not installed whole."""
    with pytest.raises(StoreError, match=r"nothing\.lua is missing"):
        Scripts({"moves/claim.lua": "-- include: shared/nothing"}).get("claim")


async def test_the_version_of_events_is_the_core_s(store: RedisStore, queue: QueueRef) -> None:
    """It stands in the scripts as a number, once for each of the three shapes of events."""
    await enqueue(store, queue, [new_job("a")])
    await store.moves.cancel(queue, ["a"])
    await store.moves.delete(queue, ["a"])

    events = await store.events.read_events(queue)

    assert [event.move for event in events] == [Move.ENQUEUE, Move.CANCEL, Move.DELETE]
    assert {event.v for event in events} == {EVENT_VERSION}


async def test_scripts_that_the_server_lost_are_given_to_it_again(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """After a restart, a failover or a flush."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await claim_one(store, queue)
    await operator.script_flush()

    job = await claim_one(store, queue)
    await operator.script_flush()
    [outcome] = await store.moves.settle(queue, [Complete(job.id, job.token)])

    assert outcome == Applied(State.COMPLETED)


async def test_a_server_that_came_back_empty_gets_its_queues_again(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """What was lost is lost; the next job is not."""
    await enqueue(store, queue, [new_job("a")])
    await operator.flushall()

    await enqueue(store, queue, [new_job("b")])

    assert [info.queue for info in await store.queues.list_queues(queue.tenant)] == [queue]
    assert (await claim_one(store, queue)).id == "b"


def _entries() -> list[str]:
    """The scripts that are run, by their names."""
    return [path.removesuffix(".lua") for path in loaded_sources() if not path.startswith("shared/")]
