"""What the project's own stores say of themselves, and hold for a service."""

from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE, Durability
from penstock.testing.conformance.parts import Part
from tests.conformance.having import served
from tests.conformance.stores import Kind


async def test_a_store_says_what_it_is(store: Store, kind: Kind) -> None:
    """Its kind, the server, and what an accepted job survives."""
    info = await store.health.info()

    assert info.kind in {"memory", "sqlite", "redis", "postgres"}
    assert info.durability in set(Durability)
    assert (info.durability is Durability.MEMORY) == (kind.name in {"memory", "remote"})
    assert info.server_version
    assert info.schema_version >= 1


@served(Part.KEY_VALUE)
async def test_the_service_has_entries_of_no_tenant(store: Store, queue: QueueRef) -> None:
    name = queue.tenant
    await store.key_value.put_entry(EVERYONE, "tenants", name, b"x")

    assert [
        each.name for each in await store.key_value.list_entries(EVERYONE, "tenants") if each.name == name
    ] == [name]
    assert await store.key_value.delete_entry(EVERYONE, "tenants", name)
