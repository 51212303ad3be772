"""Celery on Redis: processes or threads, no call that enqueues many, results not asked for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from celery import Celery

from benchmarks.beside.calls import ThreadCalls
from benchmarks.beside.handlers import URL, executed, waited

app = Celery("bench", broker=URL, task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task
def noop(n: int) -> None:
    executed()


@app.task
def stamped(n: int) -> None:
    waited(n)


@contextmanager
def calls() -> Iterator[ThreadCalls]:
    """Connections come from its pool; one producer for a whole loop is what its guide says for many."""

    def many(numbers: Sequence[int]) -> None:
        with app.producer_or_acquire() as producer:
            for number in numbers:
                noop.apply_async((number,), producer=producer)

    yield ThreadCalls(noop.delay, many, stamped.delay)
