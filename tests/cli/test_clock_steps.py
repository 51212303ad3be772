"""What `doctor` says of a clock that was set back."""

import re

from penstock.core.job import NewJob
from penstock.stores.protocol import Store
from tests.cli.conftest import MAIL, Shell

HOUR = 3_600_000


def seen(shell: Shell) -> str:
    """What the healthy store says of its clock's steps."""
    document = shell.json("doctor")
    assert document["healthy"] is True
    return next(str(check["seen"]) for check in document["checks"] if check["name"] == "clock steps")


def test_a_clock_that_was_never_set_back_says_so(shell: Shell) -> None:
    shell.store(lambda store: store.moves.enqueue(MAIL, [new("a")]))

    assert seen(shell) == "never set back"


def test_a_step_is_shown_with_the_delayed_jobs_that_it_holds_back(shell: Shell) -> None:
    """Those that were enqueued by the time before, and no others."""

    async def step(store: Store) -> None:
        await store.clock.advance_clock(HOUR)
        await store.moves.enqueue(MAIL, [new("held")])
        await store.clock.advance_clock(-HOUR)
        await store.moves.enqueue(MAIL, [new("free")])

    shell.store(step)

    # The step is shorter than an hour by the time that passed between the two enqueues.
    assert re.match(r"set back by (1 h|5\d min( \d+ s)?) at ", seen(shell))
    assert seen(shell).endswith("delayed jobs that it holds back: mail/held")


def new(name: str) -> NewJob:
    """A job that waits for a while."""
    return NewJob(id=name, nonce=name, task="send", payload=b"{}", delay_ms=30_000)
