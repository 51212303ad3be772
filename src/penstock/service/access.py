"""The access log: one line per request, with what an operator needs and nothing of what was sent."""

import logging
import re
import secrets
from collections.abc import Mapping
from typing import Final

_LOGGER: Final = logging.getLogger("penstock.access")
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(headers: Mapping[str, str]) -> str:
    """The id that the caller gave, where it is one, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _ID.fullmatch(given) else secrets.token_hex(8)


def log(
    *, method: str, path: str, status: int, seconds: float, request: str, tenant: str | None, who: str | None
) -> None:
    """Tell of one request. `path` is the route's own where there is one: ids and queries stay out."""
    level = logging.WARNING if status >= 500 else logging.INFO
    if not _LOGGER.isEnabledFor(level):
        return
    said = {"tenant": tenant, "subject": who, "request": request, "status": status}
    _LOGGER.log(level, "%s %s %d in %.1f ms", method, path, status, seconds * 1000, extra=said)
