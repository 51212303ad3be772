"""Names, keys and ids."""

import itertools

import msgspec
import pytest

from penstock.core.errors import InvalidNameError
from penstock.core.ids import LENGTH, MAX_QUEUE_NUMBER, IdMaker, queue_number
from penstock.core.names import check_key, check_name, check_worker
from penstock.service.wire.claims import ClaimRequest
from penstock.worker.options import worker_name


@pytest.mark.parametrize("name", ["a", "9", "mail", "Mail.v2_x-1", "a" * 128])
def test_a_name_is_up_to_128_letters_digits_dots_underscores_and_dashes(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-a", ".a", "_a", "a" * 129, "a b", "a/b", "a:b", "{a}", "a\n", "ä", "a\0", "a'--", None, 3],
)
def test_any_other_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidNameError) as caught:
        check_name("queue", name)

    assert caught.value.field == "queue"


@pytest.mark.parametrize("key", ["a", "{a}:b\0\n'; DROP", "ä" * 256, "x" * 512])
def test_a_key_is_any_text_of_1_to_512_bytes(key: str) -> None:
    assert check_key("key", key) == key


@pytest.mark.parametrize("key", ["", "x" * 513, "ä" * 257, "\ud800", b"a", None])
def test_any_other_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidNameError):
        check_key("key", key)


def test_ids_of_one_maker_increase_also_within_a_millisecond() -> None:
    times = iter([5, 5, 5, 4, 6])
    maker = IdMaker(lambda: next(times), lambda bits: (1 << bits) - 1)
    made = [maker.make(7) for _ in range(5)]

    assert all(early < late for early, late in itertools.pairwise(made))
    assert all(len(each) == LENGTH for each in made)


def test_ids_sort_by_time_across_makers() -> None:
    early = IdMaker(lambda: 1_000, lambda bits: (1 << bits) - 1).make(MAX_QUEUE_NUMBER)
    late = IdMaker(lambda: 1_001, lambda bits: 0).make(0)

    assert early < late


@pytest.mark.parametrize("number", [0, 1, 31, 32, 1_000, MAX_QUEUE_NUMBER])
def test_a_generated_id_carries_its_queues_number(number: int) -> None:
    assert queue_number(IdMaker(lambda: 1, lambda bits: 1).make(number)) == number


@pytest.mark.parametrize("chosen", ["order-7", "a" * 26, "0" * 25])
def test_a_chosen_id_names_no_queue(chosen: str) -> None:
    assert queue_number(chosen) is None


def test_a_generated_id_is_a_name() -> None:
    made = IdMaker(lambda: 1_700_000_000_000, lambda bits: 12345).make(3)

    assert check_name("id", made) == made


@pytest.mark.parametrize("name", ["w", "host-1:4711@eu", "a" * 128])
def test_a_worker_has_the_same_name_in_python_and_over_http(name: str) -> None:
    assert check_worker("worker", name) == worker_name(name) == name
    assert msgspec.convert({"worker": name}, ClaimRequest).worker == name


@pytest.mark.parametrize("name", ["", "a\nb", "a\n", "a b", "\x1b[2J", "a" * 129, "-a", "ä"])
def test_what_is_no_name_of_a_worker_is_none_anywhere(name: str) -> None:
    with pytest.raises(InvalidNameError, match="worker"):
        worker_name(name)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"worker": name}, ClaimRequest)
