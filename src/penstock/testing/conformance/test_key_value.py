"""KeyValue: what is remembered for a tenant beside its jobs, changed by compare-and-set."""

import asyncio

import pytest

from penstock.core.errors import InvalidError, InvalidNameError
from penstock.core.job import QueueRef
from penstock.stores.bounds import ENTRY_BYTES
from penstock.stores.protocol import Store
from penstock.stores.values import KeyValueEntry
from penstock.testing.conformance.parts import Part, needs

WRITERS = 8


@needs(Part.KEY_VALUE)
async def test_what_was_kept_is_found_by_its_name(store: Store, queue: QueueRef) -> None:
    body = bytes(range(256))
    entry = await store.key_value.put_entry(queue.tenant, "quotas", "all", body)

    assert entry is not None
    assert entry == KeyValueEntry("all", body, entry.version)
    assert await store.key_value.get_entry(queue.tenant, "quotas", "all") == entry
    assert await store.key_value.list_entries(queue.tenant, "quotas") == [entry]


@needs(Part.KEY_VALUE)
async def test_nothing_is_found_where_nothing_was_kept(store: Store, queue: QueueRef) -> None:
    await store.key_value.put_entry(queue.tenant, "quotas", "all", b"x")

    assert await store.key_value.get_entry(queue.tenant, "quotas", "other") is None
    assert await store.key_value.get_entry(queue.tenant, "tokens", "all") is None
    assert await store.key_value.get_entry(f"{queue.tenant}x", "quotas", "all") is None
    assert await store.key_value.list_entries(queue.tenant, "tokens") == []
    assert not await store.key_value.delete_entry(queue.tenant, "tokens", "all")


@needs(Part.KEY_VALUE)
async def test_an_entry_takes_the_place_of_the_one_before(store: Store, queue: QueueRef) -> None:
    first = await store.key_value.put_entry(queue.tenant, "quotas", "all", b"first")
    second = await store.key_value.put_entry(queue.tenant, "quotas", "all", b"")

    assert first is not None
    assert second is not None
    assert second.version > first.version
    assert await store.key_value.list_entries(queue.tenant, "quotas") == [
        KeyValueEntry("all", b"", second.version)
    ]


@needs(Part.KEY_VALUE)
async def test_only_what_is_as_expected_is_changed(store: Store, queue: QueueRef) -> None:
    place = (queue.tenant, "quotas", "all")
    made = await store.key_value.put_entry(*place, b"1", expected=0)
    assert made is not None
    assert await store.key_value.put_entry(*place, b"again", expected=0) is None
    changed = await store.key_value.put_entry(*place, b"2", expected=made.version)
    assert changed is not None

    assert await store.key_value.put_entry(*place, b"late", expected=made.version) is None
    assert not await store.key_value.delete_entry(*place, expected=made.version)
    assert await store.key_value.get_entry(*place) == KeyValueEntry("all", b"2", changed.version)
    assert await store.key_value.delete_entry(*place, expected=changed.version)
    assert await store.key_value.get_entry(*place) is None
    assert await store.key_value.put_entry(*place, b"gone", expected=changed.version) is None
    assert await store.key_value.list_entries(queue.tenant, "quotas") == []


@needs(Part.KEY_VALUE)
async def test_an_entry_made_anew_has_none_of_the_versions_before(store: Store, queue: QueueRef) -> None:
    place = (queue.tenant, "quotas", "all")
    before = await store.key_value.put_entry(*place, b"1")
    assert before is not None
    await store.key_value.delete_entry(*place)
    after = await store.key_value.put_entry(*place, b"2")

    assert after is not None
    assert after.version > before.version
    assert await store.key_value.put_entry(*place, b"stale", expected=before.version) is None


@needs(Part.KEY_VALUE)
async def test_entries_come_by_name_and_in_pages(store: Store, queue: QueueRef) -> None:
    names = ["b", "a", "B", "10", "9", "a.b", "a-b", "a_b", "ab"]
    for name in names:
        await store.key_value.put_entry(queue.tenant, "tokens", name, name.encode())

    async def page(after: str, limit: int) -> list[str]:
        return [
            each.name
            for each in await store.key_value.list_entries(queue.tenant, "tokens", after=after, limit=limit)
        ]

    found: list[str] = []
    while part := await page(found[-1] if found else "", 4):
        found += part

    assert found == sorted(names)
    assert await page("a", 2) == sorted(names)[sorted(names).index("a") + 1 :][:2]
    assert await page("zz", 4) == []
    assert await page("", 0) == []


@needs(Part.KEY_VALUE)
async def test_of_many_that_change_one_version_one_wins(store: Store, queue: QueueRef) -> None:
    """A count that everybody raises by compare-and-set misses none."""
    place = (queue.tenant, "usage", "jobs")

    async def raise_by_one() -> None:
        while True:
            entry = await store.key_value.get_entry(*place)
            count, version = (0, 0) if entry is None else (int(entry.body), entry.version)
            if await store.key_value.put_entry(*place, b"%d" % (count + 1), expected=version) is not None:
                return

    await asyncio.gather(*(raise_by_one() for _ in range(WRITERS)))
    entry = await store.key_value.get_entry(*place)

    assert entry is not None
    assert int(entry.body) == WRITERS


@needs(Part.KEY_VALUE)
async def test_a_body_that_is_too_large_is_refused(store: Store, queue: QueueRef) -> None:
    largest = bytes(ENTRY_BYTES)
    kept = await store.key_value.put_entry(queue.tenant, "quotas", "all", largest)

    with pytest.raises(InvalidError, match=f"{ENTRY_BYTES + 1} bytes"):
        await store.key_value.put_entry(queue.tenant, "quotas", "all", largest + b"x")
    assert await store.key_value.get_entry(queue.tenant, "quotas", "all") == kept


@needs(Part.KEY_VALUE)
@pytest.mark.parametrize(
    ("field", "place"),
    [("tenant", ("", "s", "n")), ("namespace", ("t", "s:", "n")), ("name", ("t", "s", "n/"))],
)
async def test_a_place_that_cannot_be_is_named(store: Store, field: str, place: tuple[str, str, str]) -> None:
    for call in (
        store.key_value.get_entry(*place),
        store.key_value.put_entry(*place, b""),
        store.key_value.delete_entry(*place),
    ):
        with pytest.raises(InvalidNameError, match=field):
            await call


@needs(Part.KEY_VALUE)
async def test_namespaces_are_no_queues(store: Store, queue: QueueRef) -> None:
    await store.key_value.put_entry(queue.tenant, "quotas", "all", b"x")

    assert await store.queues.list_queues(queue.tenant) == []
    assert queue.tenant not in await store.queues.list_tenants()
