"""Cursors as text, and what shows that a log is not the one they came from."""

import msgspec
import pytest

from penstock.core.cursors import MAX_SEQ, Cursor, check_cursor, placed, read_cursor
from penstock.core.errors import CursorLostError, OptionError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.moves import Move

QUEUE = QueueRef("default", "mail")
EVENT = Event(v=1, tenant="default", queue="mail", seq=7, move=Move.ENQUEUE, at=1, job="a", version=1)


def test_the_cursor_of_an_event_is_its_number_and_its_mark() -> None:
    cursor = read_cursor("after", placed(EVENT).cursor)

    assert cursor == Cursor(7, EVENT.mark)
    assert str(cursor) == f"7-{EVENT.mark}"


@pytest.mark.parametrize("number", [0, 7, MAX_SEQ])
def test_a_number_is_a_cursor_without_a_mark(number: int) -> None:
    assert read_cursor("after", number) == read_cursor("after", str(number)) == Cursor(number)


@pytest.mark.parametrize(
    "given", ["", "abc", -1, MAX_SEQ + 1, "7-", "7-abc", "7-0123456G", "7-012345678", " 7", "7\n", "٧"]
)
def test_what_is_no_cursor_is_named(given: str | int) -> None:
    with pytest.raises(OptionError, match="wanted the cursor of an event") as told:
        read_cursor("after", given)

    assert (told.value.field, told.value.found) == ("after", given)


def test_a_cursor_is_no_part_of_the_record() -> None:
    assert placed(EVENT).to_json() == EVENT.to_json()
    assert placed(EVENT).mark == EVENT.mark


@pytest.mark.parametrize("mark", [None, EVENT.mark])
@pytest.mark.parametrize(("first", "last"), [(1, 7), (7, 7), (8, 7), (8, 9)])
def test_what_follows_can_be_told_while_none_of_it_was_trimmed(
    mark: str | None, first: int, last: int
) -> None:
    check_cursor(QUEUE, Cursor(7, mark), first, last, EVENT if first <= 7 else None)


@pytest.mark.parametrize("mark", [None, EVENT.mark])
def test_what_was_trimmed_is_told_by_its_numbers(mark: str | None) -> None:
    with pytest.raises(CursorLostError, match="events 8 to 10 of queue mail were trimmed"):
        check_cursor(QUEUE, Cursor(7, mark), 11, 20, None)


def test_a_cursor_beyond_the_newest_event_is_lost_and_a_number_is_not() -> None:
    check_cursor(QUEUE, Cursor(7), 1, 6, None)
    with pytest.raises(CursorLostError, match="beyond event 6"):
        check_cursor(QUEUE, Cursor(7, EVENT.mark), 1, 6, None)


def test_a_number_that_was_used_again_is_noticed() -> None:
    other = msgspec.structs.replace(EVENT, job="b")

    check_cursor(QUEUE, Cursor(7), 1, 9, other)
    with pytest.raises(CursorLostError, match="event 7 of queue mail is another one"):
        check_cursor(QUEUE, Cursor(7, EVENT.mark), 1, 9, other)
