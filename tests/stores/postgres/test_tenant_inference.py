"""What a role that was admitted to a tenant can find out of others without reading it."""

from penstock.core.job import QueueRef
from penstock.stores.postgres import PostgresStore
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened
from tests.stores.postgres.conftest import as_role, owner_of, run

SHOP = QueueRef("shop", "q")


async def test_a_plan_tells_of_rows_that_the_role_cannot_read(guarded: str) -> None:
    """PostgreSQL promises no more, so the documentation must not: should this ever fail, it can."""
    async with opened(PostgresStore(owner_of(guarded))) as shop:
        await enqueue(shop, SHOP, [new_job("secret")])
    [(number,)] = await run(guarded, "SELECT n FROM guarded.queue WHERE tenant = 'shop'")

    def asked(condition: str) -> str:
        return f"SELECT 1 FROM guarded.job WHERE queue = {number} AND {condition}"

    read = await run(as_role("mail_app", guarded), asked("id = 'secret'"))
    plans = [
        str(await run(as_role("mail_app", guarded), f"EXPLAIN (ANALYZE, COSTS OFF) {asked(condition)}"))
        for condition in ("id = 'secret'", "id = 'other'")
    ]

    assert read == []
    assert ["Rows Removed by Filter: 1" in plan for plan in plans] == [True, False]
