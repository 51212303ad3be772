"""What the tests of the suite ask for. Penstock brings fixtures of these names for all of its stores."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module

import pytest

from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.testing.conformance.aio import InLoop
from penstock.testing.conformance.parts import PARTS, REQUIRED, Part

TwoHandles = Callable[[], AbstractAsyncContextManager[tuple[Store, Store]]]


@pytest.fixture
def queue() -> QueueRef:
    """A queue that nobody else uses, of a tenant that nobody else uses."""
    return QueueRef(f"t{secrets.token_hex(4)}", "q")


@pytest.fixture
def parts(request: pytest.FixtureRequest) -> frozenset[Part]:
    """The parts that the store has."""
    return parts_of(request.config)


@pytest.fixture
def is_brief() -> bool:
    """True where the longest tests do less: on a second version of a server that is tested in full."""
    return False


@pytest.fixture
def store(request: pytest.FixtureRequest, queue: QueueRef, parts: frozenset[Part]) -> InLoop:
    """An open store with nothing in it. After the test, every queue of the test's tenant has to be sound."""
    return InLoop(sound(_factory(request.config)(), queue.tenant, parts))


@pytest.fixture
def two_handles(request: pytest.FixtureRequest) -> TwoHandles:
    """Opens two handles on one store, as two processes have them."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Store, Store]]:
        one = _factory(request.config)()
        await one.open()
        other = one.clone()
        await other.open()
        yield one, other
        await other.close()
        await one.close()

    return opened


@asynccontextmanager
async def sound(store: Store, tenant: str, parts: frozenset[Part] = PARTS) -> AsyncIterator[Store]:
    """The store, open for the block; then its queues of the tenant are checked, where it can do that."""
    await store.open()
    try:
        yield store
        for info in await store.queues.list_queues(tenant) if Part.HEALTH in parts else ():
            findings = await store.health.check(info.queue)

            assert findings == [], f"after the test, {info.queue} is not sound"
    finally:
        await store.close()


def parts_of(config: pytest.Config) -> frozenset[Part]:
    """The parts that were named on the command line, with those that every store has; all if none were."""
    named = config.getoption("--penstock-parts")
    if not named:
        return PARTS
    words = {word.strip() for word in named.split(",")} - {""}
    if unknown := sorted(words - {part.value for part in Part}):
        raise pytest.UsageError(
            f"--penstock-parts: found {', '.join(unknown)}, wanted some of {', '.join(Part)}"
        )
    return REQUIRED | {Part(word) for word in words}


def _factory(config: pytest.Config) -> Callable[[], Store]:
    named = config.getoption("--penstock-store")
    module, _, name = (named or "").partition(":")
    if not name:
        raise pytest.UsageError(
            f"--penstock-store: found {named or 'nothing'}, wanted MODULE:FACTORY that makes an empty store"
        )
    made: Callable[[], Store] = getattr(import_module(module), name)
    return made
