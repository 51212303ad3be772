"""Shelves: what is remembered for a tenant beside its jobs, changed by compare-and-set."""

import asyncio

import pytest

from penstock.core.errors import InvalidError, InvalidNameError
from penstock.core.job import QueueRef
from penstock.stores.bounds import KEPT_BYTES
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE, Kept
from tests.conformance.having import having, served
from tests.conformance.stores import Part

everywhere = having(Part.SHELVES)

WRITERS = 8


@everywhere
async def test_what_was_kept_is_found_by_its_name(store: Store, queue: QueueRef) -> None:
    body = bytes(range(256))
    entry = await store.keep(queue.tenant, "quotas", "all", body)

    assert entry is not None
    assert entry == Kept("all", body, entry.version)
    assert await store.kept(queue.tenant, "quotas", "all") == entry
    assert await store.shelf(queue.tenant, "quotas") == [entry]


@everywhere
async def test_nothing_is_found_where_nothing_was_kept(store: Store, queue: QueueRef) -> None:
    await store.keep(queue.tenant, "quotas", "all", b"x")

    assert await store.kept(queue.tenant, "quotas", "other") is None
    assert await store.kept(queue.tenant, "tokens", "all") is None
    assert await store.kept(f"{queue.tenant}x", "quotas", "all") is None
    assert await store.shelf(queue.tenant, "tokens") == []
    assert not await store.drop(queue.tenant, "tokens", "all")


@everywhere
async def test_an_entry_takes_the_place_of_the_one_before(store: Store, queue: QueueRef) -> None:
    first = await store.keep(queue.tenant, "quotas", "all", b"first")
    second = await store.keep(queue.tenant, "quotas", "all", b"")

    assert first is not None
    assert second is not None
    assert second.version > first.version
    assert await store.shelf(queue.tenant, "quotas") == [Kept("all", b"", second.version)]


@everywhere
async def test_only_what_is_as_expected_is_changed(store: Store, queue: QueueRef) -> None:
    place = (queue.tenant, "quotas", "all")
    made = await store.keep(*place, b"1", expected=0)
    assert made is not None
    assert await store.keep(*place, b"again", expected=0) is None
    changed = await store.keep(*place, b"2", expected=made.version)
    assert changed is not None

    assert await store.keep(*place, b"late", expected=made.version) is None
    assert not await store.drop(*place, expected=made.version)
    assert await store.kept(*place) == Kept("all", b"2", changed.version)
    assert await store.drop(*place, expected=changed.version)
    assert await store.kept(*place) is None
    assert await store.keep(*place, b"gone", expected=changed.version) is None
    assert await store.shelf(queue.tenant, "quotas") == []


@everywhere
async def test_an_entry_made_anew_has_none_of_the_versions_before(store: Store, queue: QueueRef) -> None:
    place = (queue.tenant, "quotas", "all")
    before = await store.keep(*place, b"1")
    assert before is not None
    await store.drop(*place)
    after = await store.keep(*place, b"2")

    assert after is not None
    assert after.version > before.version
    assert await store.keep(*place, b"stale", expected=before.version) is None


@everywhere
async def test_entries_come_by_name_and_in_pages(store: Store, queue: QueueRef) -> None:
    names = ["b", "a", "B", "10", "9", "a.b", "a-b", "a_b", "ab"]
    for name in names:
        await store.keep(queue.tenant, "tokens", name, name.encode())

    async def page(after: str, limit: int) -> list[str]:
        return [each.name for each in await store.shelf(queue.tenant, "tokens", after=after, limit=limit)]

    found: list[str] = []
    while part := await page(found[-1] if found else "", 4):
        found += part

    assert found == sorted(names)
    assert await page("a", 2) == sorted(names)[sorted(names).index("a") + 1 :][:2]
    assert await page("zz", 4) == []
    assert await page("", 0) == []


@everywhere
async def test_of_many_that_change_one_version_one_wins(store: Store, queue: QueueRef) -> None:
    """A count that everybody raises by compare-and-set misses none."""
    place = (queue.tenant, "usage", "jobs")

    async def raise_by_one() -> None:
        while True:
            entry = await store.kept(*place)
            count, version = (0, 0) if entry is None else (int(entry.body), entry.version)
            if await store.keep(*place, b"%d" % (count + 1), expected=version) is not None:
                return

    await asyncio.gather(*(raise_by_one() for _ in range(WRITERS)))
    entry = await store.kept(*place)

    assert entry is not None
    assert int(entry.body) == WRITERS


@served(Part.SHELVES)
async def test_the_service_has_shelves_that_are_no_tenants(store: Store, queue: QueueRef) -> None:
    name = queue.tenant
    await store.keep(EVERYONE, "tenants", name, b"x")

    assert [each.name for each in await store.shelf(EVERYONE, "tenants") if each.name == name] == [name]
    assert await store.drop(EVERYONE, "tenants", name)


@everywhere
async def test_a_body_that_is_too_large_is_refused(store: Store, queue: QueueRef) -> None:
    largest = bytes(KEPT_BYTES)
    kept = await store.keep(queue.tenant, "quotas", "all", largest)

    with pytest.raises(InvalidError, match=f"{KEPT_BYTES + 1} bytes"):
        await store.keep(queue.tenant, "quotas", "all", largest + b"x")
    assert await store.kept(queue.tenant, "quotas", "all") == kept


@everywhere
@pytest.mark.parametrize(
    ("field", "place"),
    [("tenant", ("", "s", "n")), ("shelf", ("t", "s:", "n")), ("name", ("t", "s", "n/"))],
)
async def test_a_place_that_cannot_be_is_named(store: Store, field: str, place: tuple[str, str, str]) -> None:
    for call in (store.kept(*place), store.keep(*place, b""), store.drop(*place)):
        with pytest.raises(InvalidNameError, match=field):
            await call


@everywhere
async def test_shelves_are_no_queues(store: Store, queue: QueueRef) -> None:
    await store.keep(queue.tenant, "quotas", "all", b"x")

    assert await store.queues(queue.tenant) == []
    assert queue.tenant not in await store.tenants()
