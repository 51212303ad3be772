"""The access log: one line per request, with what an operator needs and nothing of what was sent."""

import logging
import re
import secrets
from collections.abc import Mapping
from typing import Final

from penstock.service.admission import RequestSlot
from penstock.service.limits import Message, Send

_LOGGER: Final = logging.getLogger("penstock.access")
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(headers: Mapping[str, str]) -> str:
    """The id that the caller gave, where it is one, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _ID.fullmatch(given) else secrets.token_hex(8)


class Visit:
    """What the log tells of a request."""

    __slots__ = ("method", "path", "request_id", "slot", "subject", "tenant")

    def __init__(self, method: str, request_id: str) -> None:
        self.method = method
        self.path = "-"
        self.request_id = request_id
        self.tenant: str | None = None
        self.subject: str | None = None
        self.slot: RequestSlot | None = None
        """Held until the request was answered."""


class Sent:
    """Remembers the status that went out."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def log(visit: Visit, status: int, seconds: float) -> None:
    """Tell of one request. Its path is the route's own: ids and queries stay out."""
    level = logging.WARNING if status >= 500 else logging.INFO
    if not _LOGGER.isEnabledFor(level):
        return
    said = {"tenant": visit.tenant, "subject": visit.subject, "request": visit.request_id, "status": status}
    _LOGGER.log(level, "%s %s %d in %.1f ms", visit.method, visit.path, status, seconds * 1000, extra=said)
