"""Where and with what the figures were made."""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def facts() -> dict[str, str]:
    """In the words of the report."""
    return {
        "Date": f"{datetime.now(UTC):%Y-%m-%d}",
        "Processor": f"{os.cpu_count()} cores, {_processor()}",
        "Memory": _memory(),
        "Kernel": f"{platform.system()} {platform.release()}",
        "Load at the start": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "Penstock": version("penstock"),
    }


def version_in(python: Path, package: str) -> str:
    """The version of a package in another environment."""
    if not python.exists():
        return "not installed"
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=30)
    return done.stdout.strip() or "not installed"


def spent(pids: Sequence[int], *, with_ended: bool = False) -> float:
    """Seconds of user and system time of these processes, all their threads; with their ended children's."""
    total = 0
    for pid in pids:
        # Those that have ended meanwhile are counted with their parents, if that is asked for.
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name may have spaces; the fields after it do not.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11 : 15 if with_ended else 13])
    return total / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    found = re.search(r"model name\s*: (.+)", _read("/proc/cpuinfo"))
    return found.group(1) if found else platform.processor() or platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text() if file.exists() else ""
