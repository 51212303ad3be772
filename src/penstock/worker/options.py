"""What a worker can be told, and within which bounds."""

import os
import re
import secrets
import socket
from typing import Final

from penstock.core.errors import OptionError
from penstock.core.names import check_worker
from penstock.stores.bounds import MAX_LEASE_MS

MIN_LEASE: Final = 0.1
MAX_LEASE: Final = MAX_LEASE_MS / 1000
DEFAULT_CONCURRENCY: Final = 10
MAX_CONCURRENCY: Final = 10_000
DEFAULT_SHUTDOWN_TIMEOUT: Final = 30.0
MAX_TIME: Final = 24 * 3600.0
_VERSION: Final = re.compile(r"[!-~]{1,128}")


def check_seconds(field: str, seconds: object, low: float, high: float) -> float:
    """The time itself, or OptionError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not low <= seconds <= high:
        raise OptionError(field, seconds, f"seconds from {low:g} to {high:g}")
    return float(seconds)


def check_count(field: str, count: object, low: int, high: int) -> int:
    """The number itself, or OptionError."""
    if isinstance(count, bool) or not isinstance(count, int) or not low <= count <= high:
        raise OptionError(field, count, f"a whole number from {low} to {high}")
    return count


def worker_name(name: str | None) -> str:
    """The name itself, or one that no other worker has."""
    if name is not None:
        return check_worker("worker", name)
    host = "".join(c if c.isalnum() and c.isascii() else "-" for c in socket.gethostname()).strip("-")
    return f"{host[:60] or 'host'}-{os.getpid()}-{secrets.token_hex(4)}"


def app_version(version: object) -> str | None:
    """The version of an app itself, or OptionError."""
    if version is None or (isinstance(version, str) and _VERSION.fullmatch(version)):
        return version
    raise OptionError("app_version", version, "1 to 128 visible characters of ASCII, no spaces")
