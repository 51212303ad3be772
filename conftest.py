"""What every test can ask for: a store of each kind, a queue of its own, and an event loop to run in."""

import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from penstock.testing.conformance import aio
from penstock.testing.conformance.fixtures import TwoHandles, sound
from penstock.testing.conformance.parts import Part
from tests.conformance.having import TOOK_PART, kind_having
from tests.conformance.stores import SECOND_SERVERS, STORES, Kind, Place, opened, place
from tests.kit import summary
from tests.kit.fast import is_fast
from tests.kit.memory import in_memory
from tests.kit.waiting import SLOWNESS

kind = kind_having()

_ON_EVERY_VERSION: Final = (
    "src/penstock/testing/conformance/",
    "tests/conformance/",
    "tests/stores/",
    "tests/reliability/",
)

# A busy machine is no failure.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine functions, each in an event loop of its own."""
    return aio.run_item(pyfuncitem)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-fast`."""
    parser.addoption(
        "--fast", action="store_true", help="run only tests on memory and SQLite that start nothing"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start counting the stores that take part, and give every test as long as a busy machine needs."""
    # A shell starts a run in the background deaf to SIGINT, nohup starts one deaf to SIGHUP, and processes
    # under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _ignore)
    config.stash[TOOK_PART] = {}
    # The processes of a run get the options of the one that starts them.
    if not hasattr(config, "workerinput"):
        config.option.timeout = SLOWNESS * float(config.option.timeout or config.getini("timeout"))


def _ignore(*_: object) -> None:
    """Ignore a signal by a function, which is not handed down to child processes, unlike SIG_IGN."""


def pytest_report_header() -> str:
    """The stores and their versions."""
    return "stores: " + ", ".join(summary.title(kind) for kind in STORES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a second version of a server shows again, and what `--fast` has no time for."""
    fast = config.getoption("--fast")
    left_out = [item for item in items if _is_shown_elsewhere(item) or (fast and not is_fast(item))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        dropped = set(left_out)
        items[:] = [item for item in items if item not in dropped]


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
    """Which stores, servers and tools took part."""
    counts = config.stash[TOOK_PART]
    if counts:
        terminalreporter.write_line(summary.stores(counts))
        terminalreporter.write_line(summary.tools())


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
def parts(kind: Kind) -> frozenset[Part]:
    """The parts of the contract that this kind of store has."""
    return kind.parts


@pytest.fixture
def is_brief(kind: Kind) -> bool:
    """True on a second version of a server: the longest tests do less there."""
    return kind.name in SECOND_SERVERS


@pytest.fixture
def store(kind: Kind, where: Place, queue: QueueRef) -> aio.InLoop:
    """An open store. After the test, every queue of the test's tenant has to be sound."""
    return aio.InLoop(sound(kind.connect(kind.address(where)), queue.tenant))


@pytest.fixture
def two_handles(kind: Kind, where: Place) -> TwoHandles:
    """Opens two handles on one store, as two processes have them; in memory there is only one."""

    @asynccontextmanager
    async def both() -> AsyncIterator[tuple[Store, Store]]:
        address = kind.address(where)
        async with opened(kind.connect(address)) as one:
            if not kind.is_shared:
                yield one, one
                return
            async with opened(kind.connect(address)) as other:
                yield one, other

    return both


def _is_shown_elsewhere(item: pytest.Item) -> bool:
    """The contract and the stores themselves are tried on every version, what stands on them on one."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    kind = params.get("kind")
    return (
        isinstance(kind, Kind)
        and kind.name in SECOND_SERVERS
        and not item.nodeid.startswith(_ON_EVERY_VERSION)
    )
