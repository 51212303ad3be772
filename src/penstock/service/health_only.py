"""Serves health checks alone, on connections beyond the limit: a full service is not a dead one."""

from typing import Any, Final

import msgspec

from penstock.service.limits import Message, Receive, Scope, Send
from penstock.service.problems import MEDIA_TYPE, Problem

HEALTH: Final = frozenset({"/health/live", "/health/ready"})
_CLOSE: Final = (b"connection", b"close")
_TITLE: Final = "Too many connections"
_BODY: Final = msgspec.json.encode(
    Problem(type="urn:penstock:busy", title=_TITLE, status=503, detail="all connections are in use")
)


class HealthOnly:
    """An app that passes on requests for health and refuses all others. Either way the connection ends."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], _CLOSE]}
            await send(message)

        if scope["method"] == "GET" and scope["path"] in HEALTH:
            await self._app(scope, receive, closing)
            return
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(_BODY)),
            (b"retry-after", b"1"),
        ]
        await closing({"type": "http.response.start", "status": 503, "headers": headers})
        await closing({"type": "http.response.body", "body": _BODY})
