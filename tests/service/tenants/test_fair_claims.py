"""Fair turns of tenants at one worker, however much one of them enqueues."""

from collections import Counter, deque
from typing import Final

import pytest

from penstock.core.job import Claimed, Options, QueueRef
from penstock.core.moves import Complete
from penstock.core.outcomes import Claims
from penstock.service.tenants.fair_claims import PROBES, FairClaims
from penstock.stores.memory import MemoryStore
from penstock.testing.conformance.arrange import enqueue, new_job

WINDOW: Final = 1_000


class Tenants:
    """Backlogs of tenants in numbers, and in which order they were claimed from."""

    def __init__(self, **backlogs: int) -> None:
        self.backlogs = Counter(backlogs)
        self.claimed: list[str] = []
        self.asked = Counter[str]()

    async def claim(self, tenant: str, limit: int) -> Claims:
        """So many of this tenant's, if it has them."""
        many = min(limit, self.backlogs[tenant])
        self.asked[tenant] += 1
        self.backlogs[tenant] -= many
        self.claimed += [tenant] * many
        return Claims([_claimed(str(n)) for n in range(many)], [], None)

    def least_in_any(self, window: int, tenant: str) -> int:
        """The fewest claims of a tenant among any so many in a row."""
        held: deque[str] = deque(maxlen=window)
        least = window
        for each in self.claimed:
            held.append(each)
            if len(held) == window:
                least = min(least, held.count(tenant))
        return least


def _claimed(name: str) -> Claimed:
    return Claimed(
        id=name, task="t", payload=b"", priority=0, options=Options(), enqueued_at=0, drive=1, delivery=1,
        attempts=0, token="t", fence=1, deadline=0,
    )  # fmt: skip


@pytest.mark.parametrize("limit", [1, 3, 7, 50, 100])
async def test_of_any_thousand_claims_each_of_two_tenants_gets_half(limit: int) -> None:
    """One has a hundred times as much waiting."""
    tenants, turns = Tenants(quiet=3_000, flood=300_000), FairClaims()
    while tenants.backlogs["quiet"]:
        await turns.claim(["flood", "quiet"], limit, tenants.claim)

    assert 450 <= tenants.least_in_any(WINDOW, "quiet") <= 550
    assert 450 <= tenants.least_in_any(WINDOW, "flood") <= 550


async def test_what_one_tenant_does_not_need_the_others_get() -> None:
    tenants, turns = Tenants(few=3, many=1_000), FairClaims()
    answers = await turns.claim(["few", "many"], 100, tenants.claim)

    assert Counter(tenants.claimed) == {"few": 3, "many": 97}
    assert sum(len(claims.jobs) for _, claims in answers) == 100


async def test_a_tenant_that_was_away_is_not_paid_for_it() -> None:
    tenants, turns = Tenants(steady=10_000), FairClaims()
    for _ in range(1_000):
        await turns.claim(["away", "steady"], 1, tenants.claim)
    tenants.backlogs["away"] = 1_000
    tenants.claimed.clear()
    for _ in range(100):
        await turns.claim(["away", "steady"], 1, tenants.claim)

    assert Counter(tenants.claimed) == {"away": 50, "steady": 50}


async def test_a_tenant_among_many_quiet_ones_is_found() -> None:
    names = [f"t{n:03}" for n in range(500)]
    tenants, turns = Tenants(t499=1), FairClaims()
    answers = await turns.claim(names, 10, tenants.claim)

    assert tenants.claimed == ["t499"]
    assert [tenant for tenant, claims in answers if claims.jobs] == ["t499"]


async def test_a_tenant_that_comes_back_is_found_while_another_floods() -> None:
    """Without asking every quiet tenant at every claim."""
    names = ["flood", *(f"t{n:03}" for n in range(100))]
    tenants, turns = Tenants(flood=100_000), FairClaims()
    await turns.claim(names, 10, tenants.claim)
    tenants.backlogs["t057"] = 1
    before = sum(tenants.asked.values())
    claims = 0
    while tenants.backlogs["t057"]:
        await turns.claim(names, 10, tenants.claim)
        claims += 1

    assert claims <= -(-len(names) // PROBES) + 1
    assert sum(tenants.asked.values()) - before <= claims * 2 * PROBES


async def test_with_more_tenants_than_jobs_asked_for_all_get_their_turn() -> None:
    names = [f"t{n}" for n in range(20)]
    tenants, turns = Tenants(**dict.fromkeys(names, 1_000)), FairClaims()
    for _ in range(200):
        await turns.claim(names, 3, tenants.claim)
    counts = Counter(tenants.claimed)

    assert set(counts) == set(names)
    assert max(counts.values()) - min(counts.values()) <= 3


async def test_jobs_that_were_claimed_reach_their_worker_though_another_tenant_failed() -> None:
    tenants, turns = Tenants(good=10), FairClaims()

    async def claim(tenant: str, limit: int) -> Claims:
        if tenant == "bad":
            raise ConnectionError("gone")
        return await tenants.claim(tenant, limit)

    answers = await turns.claim(["bad", "good"], 4, claim)

    assert [(tenant, len(claims.jobs)) for tenant, claims in answers] == [("good", 2)]
    with pytest.raises(ConnectionError, match="gone"):
        await turns.claim(["bad"], 4, claim)


async def test_no_tenants_have_nothing() -> None:
    assert await FairClaims().claim([], 10, Tenants().claim) == []


async def test_the_turns_hold_on_a_store() -> None:
    store, turns = MemoryStore(), FairClaims()
    for tenant, many in (("flood", 2_000), ("quiet", 700)):
        await enqueue(store, QueueRef(tenant, "q"), [new_job(f"j{n}") for n in range(many)])
    order: list[str] = []

    async def claim(tenant: str, limit: int) -> Claims:
        claims = await store.moves.claim(QueueRef(tenant, "q"), worker="w", limit=limit, lease_ms=60_000)
        order.extend([tenant] * len(claims.jobs))
        return claims

    while len(order) < 1_400:
        for tenant, claims in await turns.claim(["flood", "quiet"], 25, claim):
            done = [Complete(job.id, job.token) for job in claims.jobs]
            await store.moves.settle(QueueRef(tenant, "q"), done)

    for start in range(len(order) - WINDOW + 1):
        assert 450 <= order[start : start + WINDOW].count("quiet") <= 550
