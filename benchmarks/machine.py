"""Where and with what the figures were made."""

import os
import platform
import re
import subprocess
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


def _processor() -> str:
    found = re.search(r"model name\s*: (.+)", _read("/proc/cpuinfo"))
    return found.group(1) if found else platform.processor() or platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text() if file.exists() else ""
