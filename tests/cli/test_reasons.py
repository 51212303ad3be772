"""`jobs explain` knows reasons that lie in limits, keys, flows and schedules."""

import re
from typing import Any

from penstock.core.flows import Child, ChildEnding, ChildPolicy, JobRef
from penstock.core.job import NewJob, Options
from penstock.core.limits import Declaration, Mode, Rate
from penstock.core.states import State
from penstock.explain.sentences import JobFacts, explain
from penstock.stores.protocol import Store
from penstock.stores.values import Pause
from penstock.testing.conformance.parts import Part
from tests.cli.conftest import MAIL, Shell
from tests.cli.test_explain import job, said
from tests.conformance.having import shared


def declare(shell: Shell, mode: Mode = Mode.KEYED, **limits: Any) -> None:
    shell.store(lambda store: store.queues.declare(MAIL, Declaration(mode=mode, **limits)))


def flow(shell: Shell, *children: str, policy: ChildPolicy = ChildPolicy.FAIL, there: bool = True) -> None:
    """`top` waits for these."""
    top = JobRef("mail", "top")

    async def work(store: Store) -> None:
        awaits = tuple(JobRef("mail", child) for child in children)
        jobs = [
            NewJob(id="top", nonce="n", task="send", payload=b"{}", awaits=awaits, child_policy=policy),
            *(
                NewJob(id=child, nonce="n", task="send", payload=b"{}", parents=(top,))
                for child in children
                if there
            ),
        ]
        await store.moves.enqueue(MAIL, jobs)

    shell.store(work)


def carry(shell: Shell) -> None:
    async def work(store: Store) -> None:
        for relay in await store.flows.list_relay_entries(MAIL):
            assert isinstance(relay.what, ChildEnding)
            await store.flows.child_ended(MAIL, [relay.what])

    shell.store(work)


@shared(*Part)
def test_a_key_at_its_limit_is_the_reason(shell: Shell) -> None:
    declare(shell, key_limit=2)
    shell.enqueue("a", "b", "c", "d", key="ada")
    shell.enqueue("e", key="bob")
    shell.claim(3)

    text = said(shell, "d")

    assert "1 job ahead in key 'ada' of queue 'mail'" in text
    assert "key 'ada' is at its limit: 2 of 2 are running" in text
    assert "workers are busy" not in text
    assert "next in line in key 'ada'" in said(shell, "c")


@shared(*Part)
def test_a_key_held_back_by_its_rate_is_the_reason(shell: Shell) -> None:
    declare(shell, key_rate=Rate(1, 60_000))
    shell.enqueue("a", "b", key="ada")
    shell.settle("complete")

    text = said(shell, "b")

    assert "key 'ada' is held back by its rate of 1/min until " in text
    assert re.search(r"\(in 5\d s\)", text)
    assert "limit:" not in text


@shared(*Part)
def test_a_queue_at_its_max_active_is_the_reason(shell: Shell) -> None:
    declare(shell, Mode.GLOBAL, max_active=1)
    shell.enqueue("a", "b")
    shell.claim()

    assert "queue 'mail' is at its max_active: 1 of 1 are running" in said(shell, "b")


@shared(*Part)
def test_the_queues_rate_is_the_reason_and_tells_when_it_goes_on(shell: Shell) -> None:
    declare(shell, Mode.GLOBAL, rate=Rate(1, 60_000, 2))
    shell.enqueue("a", "b", "c")
    shell.settle("complete", 2)

    text = said(shell, "c")

    assert re.search(r"held back by its rate of 1/min, 2 at once: the next job may start in 5\d s", text)


@shared(*Part)
def test_the_queues_rate_is_the_reason_also_when_its_claims_are_out_of_the_log(shell: Shell) -> None:
    declare(shell, Mode.GLOBAL, rate=Rate(1, 60_000))
    shell.enqueue("a", "b")
    shell.settle("complete")
    shell.store(lambda store: store.events.trim(MAIL, through=10))

    assert re.search(r"held back by its rate of 1/min: the next job may start in 5\d s", said(shell, "b"))


@shared(*Part)
def test_limits_that_leave_room_are_no_reason(shell: Shell) -> None:
    declare(shell, key_limit=2, max_active=5, rate=Rate(1, 60_000, 3), key_rate=Rate(1, 60_000, 3))
    shell.enqueue("a", "b", key="ada")
    shell.claim()

    text = said(shell, "b")

    assert "limit" not in text
    assert "rate" not in text
    assert "workers are busy: 1 lease is held" in text


@shared(*Part)
def test_a_pause_that_ends_says_when_and_limits_are_told_beside_it(shell: Shell) -> None:
    declare(shell, key_limit=1)
    shell.enqueue("a", "b", key="ada")
    shell.claim()
    shell.store(lambda store: store.queues.pause_queue(MAIL, Pause(0, "tea"), 600_000))

    text = said(shell, "b")

    assert "is paused since" in text
    assert re.search(r"\(for another 9 min 5\d s\)", text)
    assert "key 'ada' is at its limit" in text


@shared(*Part)
def test_a_blocked_job_says_which_children_are_left(shell: Shell) -> None:
    flow(shell, "a", "b", "c")
    shell.settle("complete")
    carry(shell)
    shell.claim()

    text = said(shell, "top")

    assert text.startswith("waiting: blocked, 2 of 3 children are left")
    assert "it waits for mail/b (active), mail/c (pending)" in text


@shared(*Part)
def test_a_blocked_job_names_the_child_that_died_and_holds_it_up(shell: Shell) -> None:
    flow(shell, "a", "b", policy=ChildPolicy.WAIT)
    shell.settle("bury")
    carry(shell)

    text = said(shell, "top")

    assert "2 of 2 children are left" in text
    assert "it waits for mail/b (pending)" in text
    assert "mail/a ended as dead and holds it up: penstock jobs retry mail/a" in text


@shared(*Part)
def test_a_blocked_job_says_that_a_dead_child_which_was_removed_cannot_be_redriven(shell: Shell) -> None:
    flow(shell, "a", "b", policy=ChildPolicy.WAIT)
    shell.settle("bury")
    carry(shell)
    shell.store(lambda store: store.moves.delete(MAIL, ["a"]))

    text = said(shell, "top")

    assert "mail/a ended as dead, was removed and cannot be redriven: penstock flows cancel mail/top" in text
    assert "jobs retry" not in text


def test_a_blocked_job_of_many_names_some() -> None:
    children = [Child(JobRef("web", f"c{number}")) for number in range(9)]
    facts = JobFacts(job=job(State.BLOCKED), now=1, children=children, states=[State.PENDING] * 5)

    assert explain(facts)[1].endswith("web/c4 (pending) and 4 more")


@shared(*Part)
def test_a_blocked_job_whose_children_are_not_there_says_so(shell: Shell) -> None:
    flow(shell, "a", there=False)

    text = said(shell, "top")

    assert "it waits for mail/a (does not exist)" in text
    assert "none of them exists: deleted, or not enqueued yet, since " in text


def test_a_blocked_job_whose_children_have_ended_waits_for_the_word() -> None:
    done = [Child(JobRef("web", "c"), True, State.COMPLETED)]

    assert "which have all ended" in explain(JobFacts(job=job(State.BLOCKED), now=1, children=done))[0]


def test_without_its_children_a_blocked_job_says_what_is_known() -> None:
    text = explain(JobFacts(job=job(State.BLOCKED), now=1))[0]

    assert "blocked until the jobs it depends on have ended" in text


@shared(*Part)
def test_a_job_that_failed_with_its_child_says_so(shell: Shell) -> None:
    flow(shell, "a")
    shell.settle("fail")
    carry(shell)

    text = said(shell, "top")

    assert "(CHILD_FAILED): a job it waited for ended without success, and it did not run" in text
    assert "child mail/a ended without success" in text


@shared(*Part)
def test_a_schedules_job_says_so(shell: Shell) -> None:
    shell.enqueue("a", schedule="nightly", instant=1_767_225_600_000, options=Options())

    assert "schedule 'nightly' enqueued it for 20" in said(shell, "a")
