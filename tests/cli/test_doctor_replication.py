"""`doctor` says what clients lose on a primary that is cut off from its replicas."""

import pytest

from penstock.cli.doctor.store_checks import examine_replication
from penstock.stores.values import Durability, Replication, StoreInfo


def _info(replication: Replication | None) -> StoreInfo:
    return StoreInfo("redis", "redis://h", Durability.SERVER, "Valkey 8.1.0", 1, 0, replication)


@pytest.mark.parametrize("replication", [None, Replication(0, 0, 0)])
def test_a_store_without_replicas_is_not_examined(replication: Replication | None) -> None:
    assert examine_replication(_info(replication)) == []


def test_a_primary_that_writes_without_its_replicas_is_a_finding() -> None:
    (check,) = examine_replication(_info(Replication(2, 0, 0)))
    (finding,) = check.findings

    assert check.seen == "2 replicas, wait_replicas 0, min-replicas-to-write 0"
    assert "min-replicas-to-write is 0" in finding
    assert "jobs, claims and results" in finding


def test_claims_and_results_that_a_failover_drops_are_mentioned_and_no_fault() -> None:
    (check,) = examine_replication(_info(Replication(1, 1, 0)))

    assert check.findings == []
    assert "claims and results that a failover drops" in check.seen


def test_a_primary_that_refuses_writes_without_replicas_is_healthy() -> None:
    (check,) = examine_replication(_info(Replication(1, 0, 1)))

    assert check.findings == []
    assert check.seen == "1 replicas, wait_replicas 0, min-replicas-to-write 1"
