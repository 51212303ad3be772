"""What every test can ask for: a store of each kind, a queue of its own, and an event loop to run in."""

import inspect
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from tests.conformance.having import TOOK_PART, kind_having
from tests.conformance.stores import SECOND_SERVERS, STORES, Kind, Place, place
from tests.kit import aio
from tests.kit.memory import in_memory

kind = kind_having()

# A busy machine is no failure.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine functions, each in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    aio.run(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in names})
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Start counting the stores that take part."""
    # A run in the background of a script is started deaf to SIGINT, and the processes under test with it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[TOOK_PART] = {}


def pytest_report_header() -> str:
    """The stores and their versions."""
    return "stores: " + ", ".join(_title(kind) for kind in STORES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a second version of a server would only show again."""
    again = [item for item in items if _is_shown_elsewhere(item)]
    if again:
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if not _is_shown_elsewhere(item)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests in one process that share what takes long to make, such as a session of Spark."""
    from tests.kit.groups import Groups

    return Groups(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that reports what took part in this one."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["took_part"] = session.config.stash[TOOK_PART]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add up what took part in a process that ends."""
    counts = node.config.stash[TOOK_PART]
    for name, count in getattr(node, "workeroutput", {}).get("took_part", {}).items():
        counts[name] = counts.get(name, 0) + count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Which stores the tests ran on."""
    counts = config.stash[TOOK_PART]
    if counts:
        said = ", ".join(f"{_title(kind)}: {counts.get(kind.name, 0)} tests" for kind in STORES)
        terminalreporter.write_line(f"stores that took part: {said}")


@pytest.fixture(scope="session")
def where() -> Iterator[Place]:
    """The place of this run's stores."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-stores-", dir=in_memory()) as folder,
        place(Path(folder)) as made,
    ):
        yield made


@pytest.fixture
def queue() -> QueueRef:
    """A queue that nobody else uses, of a tenant that nobody else uses."""
    return QueueRef(f"t{secrets.token_hex(4)}", "q")


@pytest.fixture
def store(kind: Kind, where: Place, queue: QueueRef) -> aio.InLoop:
    """An open store. After the test, every queue of the test's tenant has to be sound."""
    return aio.InLoop(_sound(kind, where, queue.tenant))


@asynccontextmanager
async def _sound(kind: Kind, where: Place, tenant: str) -> AsyncIterator[Store]:
    async with kind.open(where) as store:
        yield store
        for info in await store.queues(tenant):
            findings = await store.check(info.queue)

            assert findings == [], f"after the test, {info.queue} is not sound"


def _is_shown_elsewhere(item: pytest.Item) -> bool:
    """The contract and the stores themselves are tried on every version, what stands on them on one."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    kind = params.get("kind")
    return (
        isinstance(kind, Kind)
        and kind.name in SECOND_SERVERS
        and not item.nodeid.startswith(("tests/conformance/", "tests/stores/", "tests/reliability/"))
    )


def _title(kind: Kind) -> str:
    why = kind.missing()
    return f"{kind.name} {kind.version()}" if why is None else f"{kind.name} missing ({why})"
