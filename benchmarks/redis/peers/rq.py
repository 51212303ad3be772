"""RQ: a list of jobs, `enqueue_many`; its worker forks for each job unless told otherwise."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from redis import Redis
from rq import Queue

from benchmarks.beside.calls import ThreadCalls
from benchmarks.beside.handlers import URL, executed, waited


def noop(n: int) -> None:
    """A job."""
    executed()


def stamped(n: int) -> None:
    """A job that says how long it waited."""
    waited(n)


@contextmanager
def calls() -> Iterator[ThreadCalls]:
    """A queue on a client that threads share."""
    with Redis.from_url(URL) as client:
        queue = Queue(connection=client)

        def many(numbers: Sequence[int]) -> None:
            queue.enqueue_many([Queue.prepare_data(noop, (number,)) for number in numbers])

        yield ThreadCalls(
            lambda number: queue.enqueue(noop, number), many, lambda number: queue.enqueue(stamped, number)
        )
