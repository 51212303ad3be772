"""A process that forks: the child has connections of its own, and its end costs the parent none."""

import os

import psycopg
import pytest

from penstock import Penstock
from tests.client.test_fork import enqueue, in_child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def test_a_child_enqueues_and_the_connections_of_its_parent_live_on(url: str) -> None:
    app = Penstock(url)
    app.queue("default")

    with app.blocking as queue, psycopg.connect(url, autocommit=True) as operator:
        queue.enqueue(app.by_name("add"), a=1)
        before = _processes(operator)
        said = in_child(lambda: enqueue(app))
        queue.enqueue(app.by_name("add"), a=2)

        assert said == "enqueued in default"
        assert before <= _processes(operator)


def _processes(operator: "psycopg.Connection[tuple[int]]") -> set[int]:
    asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock'"
    return {pid for (pid,) in operator.execute(asked).fetchall()}
