"""Offsets as checkpoints keep them, and how a batch is shared out."""

import pytest

from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.spark.events.offsets import Offset, QueuePosition, read_offset, read_places
from penstock.spark.events.sharing import shares

MAIL = QueueRef("shop", "mail")
BILLS = QueueRef("shop", "bills")


def test_an_offset_reads_back_from_its_own_json() -> None:
    """Whatever order its queues were found in."""
    offset = Offset(
        {MAIL: QueuePosition("7-42-9f3c01ab", "6-41-9f3c01aa", "m1"), BILLS: QueuePosition("3")}, "spark-1"
    )
    given = offset.to_dict()

    assert read_offset("checkpoint", given) == offset
    assert list(given["queues"]) == ["shop/bills", "shop/mail"]
    assert given["queues"]["shop/mail"] == {"cursor": "7-42-9f3c01ab", "from": "6-41-9f3c01aa", "made": "m1"}
    assert given["queues"]["shop/bills"] == {"cursor": "3"}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"v": 2, "queues": {}},
        {"v": 1},
        {"v": 1, "queues": []},
        {"v": 1, "queues": {"mail": {"cursor": "1"}}},
        {"v": 1, "queues": {"a/b/c": {"cursor": "1"}}},
        {"v": 1, "queues": {"shop/mail": "1"}},
        {"v": 1, "queues": {"shop/mail": {}}},
        {"v": 1, "queues": {"shop/mail": {"cursor": "x"}}},
        {"v": 1, "queues": {"shop/mail": {"cursor": "1", "from": "-"}}},
        {"v": 1, "queues": {"shop/mail": {"cursor": "1", "since": "0"}}},
        {"v": 1, "queues": {}, "reader": 5},
    ],
)
def test_what_is_no_offset_is_refused(given: dict[str, object]) -> None:
    """With the name of what it was taken from."""
    with pytest.raises(OptionError, match="checkpoint"):
        read_offset("checkpoint", given)


def test_an_option_may_say_it_shorter() -> None:
    """By queue alone where there is one tenant, by number, or with a word."""
    text = '{"mail": "42-9f3c01ab", "shop/bills": 7, "post": "latest", "old": "earliest"}'
    whole = '{"v": 1, "queues": {"shop/mail": {"cursor": "42-9f3c01ab"}}}'

    assert read_places("startingOffsets", text, ("shop",)) == {
        MAIL: "42-9f3c01ab",
        BILLS: "7",
        QueueRef("shop", "post"): "latest",
        QueueRef("shop", "old"): "earliest",
    }
    assert read_places("startingOffsets", whole, ("shop",)) == {MAIL: "42-9f3c01ab"}


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "[]",
        "5",
        '{"mail"',
        '{"mail": true}',
        '{"mail": -1}',
        '{"mail": {"cursor": "1"}}',
        '{"a b": "1"}',
    ],
)
def test_an_option_that_names_no_offsets_is_refused(text: str) -> None:
    """Nothing is guessed from it."""
    with pytest.raises(OptionError, match="startingOffsets"):
        read_places("startingOffsets", text, ("shop",))


def test_a_queue_without_its_tenant_is_refused_where_there_are_several() -> None:
    """It could be either."""
    with pytest.raises(OptionError, match="wanted tenant/queue"):
        read_places("startingOffsets", '{"mail": "1"}', ("shop", "depot"))


def test_a_batch_is_shared_evenly() -> None:
    """Who needs less leaves the rest to the others."""
    assert shares({"a": 5, "b": 5}, None) == {"a": 5, "b": 5}
    assert shares({"a": 5, "b": 5}, 100) == {"a": 5, "b": 5}
    assert shares({"a": 1_000, "b": 2, "c": 1_000}, 12) == {"a": 5, "b": 2, "c": 5}
    assert shares({}, 10) == {}


def test_what_cannot_be_divided_goes_round() -> None:
    """Also where there are more queues than events in a batch."""
    wanted = dict.fromkeys("abcde", 100)
    turns = [shares(wanted, 2, turn) for turn in range(5)]

    assert all(sum(given.values()) == 2 for given in turns)
    assert {name: sum(given[name] for given in turns) for name in wanted} == dict.fromkeys(wanted, 2)
