"""The access log: one line per request, with what an operator needs and nothing of what was sent."""

import logging
import re
import secrets
from collections.abc import Mapping
from typing import Final

from penstock.service.admission import BodyShare, RequestSlot
from penstock.service.limits import Message, Send

_LOGGER: Final = logging.getLogger("penstock.access")
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(headers: Mapping[str, str]) -> str:
    """The request id that the client sent, where it is valid, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _ID.fullmatch(given) else secrets.token_hex(8)


class AccessLogEntry:
    """What the access log says about a request."""

    __slots__ = ("body", "method", "path", "request_id", "slot", "subject", "tenant")

    def __init__(self, method: str, request_id: str) -> None:
        self.method = method
        self.path = "-"
        self.request_id = request_id
        self.tenant: str | None = None
        self.subject: str | None = None
        self.slot: RequestSlot | None = None
        """The slot that the request holds until it was answered."""
        self.body: BodyShare | None = None
        """The share of the tenant's body bytes that the request holds until it was answered."""


class StatusRecorder:
    """Records the status that was sent."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def log(entry: AccessLogEntry, status: int, seconds: float) -> None:
    """Log one request, with the path of its route: ids and queries are not logged."""
    level = logging.WARNING if status >= 500 else logging.INFO
    if not _LOGGER.isEnabledFor(level):
        return
    said = {"tenant": entry.tenant, "subject": entry.subject, "request": entry.request_id, "status": status}
    _LOGGER.log(level, "%s %s %d in %.1f ms", entry.method, entry.path, status, seconds * 1000, extra=said)
