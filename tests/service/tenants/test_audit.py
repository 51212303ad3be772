"""The audit log of administrative entries."""

import logging

import pytest

from penstock.core.job import QueueRef
from penstock.service.tenants.audit import KEPT_MS, Audit
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE
from penstock.testing.conformance.parts import Part
from tests.conformance.having import served


@served(Part.KEY_VALUE)
async def test_acts_are_told_newest_first(store: Store, queue: QueueRef) -> None:
    audit = Audit(store)
    for number in range(3):
        await audit.note(who="ada", what="queue.purge", on=f"q{number}", tenant=queue.tenant)
        await store.clock.advance_clock(10)

    assert [act.on for act in await audit.entries(queue.tenant)] == ["q2", "q1", "q0"]
    assert [act.on for act in await audit.entries(queue.tenant, limit=1)] == ["q2"]


async def test_acts_of_one_tenant_are_not_told_to_another() -> None:
    audit = Audit(MemoryStore())
    await audit.note(who="ada", what="queue.purge", on="mail", tenant="acme")

    assert await audit.entries("globex") == []
    assert await audit.entries(EVERYONE) == []


async def test_old_acts_are_forgotten() -> None:
    store = MemoryStore()
    audit = Audit(store)
    await audit.note(who="ada", what="token.revoke", on="old")
    await store.clock.advance_clock(KEPT_MS + 1)
    await audit.note(who="ada", what="token.revoke", on="new")

    assert [act.on for act in await audit.entries()] == ["new"]


async def test_an_act_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.audit"):
        await Audit(MemoryStore()).note(who="ada", what="queue.pause", on="mail", tenant="acme")

    assert caplog.messages == ["queue.pause mail by ada"]
