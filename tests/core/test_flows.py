"""The shape of a flow, and what a child's ending means."""

import random

import pytest

from penstock.core.errors import FlowError
from penstock.core.flows import ChildPolicy, JobRef, Verdict, in_order, verdict
from penstock.core.states import State

ENDINGS = [State.COMPLETED, State.FAILED, State.DEAD, State.CANCELLED, None]


@pytest.mark.parametrize("policy", ChildPolicy, ids=str)
def test_success_counts_under_every_policy(policy: ChildPolicy) -> None:
    assert verdict(State.COMPLETED, policy) is Verdict.COUNTS


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (ChildPolicy.FAIL, Verdict.FAILS),
        (ChildPolicy.IGNORE, Verdict.COUNTS),
        (ChildPolicy.WAIT, Verdict.WAITS),
    ],
)
@pytest.mark.parametrize("state", ENDINGS[1:-1], ids=str)
def test_any_other_ending_means_what_the_policy_says(
    state: State | None, policy: ChildPolicy, expected: Verdict
) -> None:
    assert verdict(state, policy) is expected


def test_a_child_that_is_gone_is_not_waited_for() -> None:
    """It will never be redriven."""
    assert [verdict(None, policy) for policy in ChildPolicy] == [
        Verdict.FAILS,
        Verdict.COUNTS,
        Verdict.FAILS,
    ]


def test_a_job_is_referred_to_by_queue_and_id() -> None:
    assert str(JobRef("mail", "a/b")) == "mail/a/b"


def test_each_comes_after_all_it_waits_for() -> None:
    flow = {"root": ["left", "right"], "left": ["leaf"], "right": ["leaf", "leaf"], "leaf": [], "alone": []}
    ordered = in_order(flow)

    assert sorted(ordered) == sorted(flow)
    assert all(ordered.index(need) < ordered.index(name) for name, needs in flow.items() for need in needs)


@pytest.mark.parametrize("seed", range(20))
def test_any_graph_without_a_cycle_can_be_ordered(seed: int) -> None:
    chance = random.Random(seed)
    names = [str(n) for n in range(40)]
    flow = {name: chance.sample(names[:n], min(n, chance.randint(0, 5))) for n, name in enumerate(names)}
    shuffled = dict(chance.sample(list(flow.items()), len(flow)))
    place = {name: n for n, name in enumerate(in_order(shuffled))}

    assert len(place) == len(names)
    assert all(place[need] < place[name] for name, needs in flow.items() for need in needs)


@pytest.mark.parametrize("length", [1, 2, 3, 50])
def test_a_cycle_is_found_whatever_its_length(length: int) -> None:
    names = [f"n{n}" for n in range(length)]
    cycle = {name: [following] for name, following in zip(names, [*names[1:], names[0]], strict=True)}

    with pytest.raises(FlowError, match=r"cycle among .*\bn0\b"):
        in_order({**cycle, "free": [], "behind": ["n0", "free"]})


def test_a_job_that_is_not_part_of_the_flow_is_named() -> None:
    with pytest.raises(FlowError, match="root waits for leaf"):
        in_order({"root": ["leaf"]})


def test_ordering_takes_time_in_proportion_to_the_edges() -> None:
    """A chain as long as any flow, and a root over as many leaves."""
    chain = {str(n): [str(n - 1)] if n else [] for n in range(20_000)}
    fan = {"root": [str(n) for n in range(20_000)], **{str(n): [] for n in range(20_000)}}

    assert in_order(chain) == [str(n) for n in range(20_000)]
    assert in_order(fan)[-1] == "root"
