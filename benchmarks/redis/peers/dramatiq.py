"""Dramatiq: threads, messages that are acknowledged, no call that enqueues many."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.beside.calls import ThreadCalls
from benchmarks.beside.handlers import URL, executed, waited

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor
def noop(n: int) -> None:
    executed()


@dramatiq.actor
def stamped(n: int) -> None:
    waited(n)


@contextmanager
def calls() -> Iterator[ThreadCalls]:
    """The broker connects by itself."""

    def many(numbers: Sequence[int]) -> None:
        for number in numbers:
            noop.send(number)

    yield ThreadCalls(noop.send, many, stamped.send)
