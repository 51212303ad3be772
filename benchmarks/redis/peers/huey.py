"""Huey: threads, a list that is popped, no call that enqueues many."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from huey import RedisHuey

from benchmarks.beside.calls import ThreadCalls
from benchmarks.beside.handlers import URL, executed, waited

huey = RedisHuey("bench", url=URL)


@huey.task()
def noop(n: int) -> None:
    executed()


@huey.task()
def stamped(n: int) -> None:
    waited(n)


@contextmanager
def calls() -> Iterator[ThreadCalls]:
    """It connects by itself."""

    def many(numbers: Sequence[int]) -> None:
        noop.map([(number,) for number in numbers])

    yield ThreadCalls(noop, many, stamped)
