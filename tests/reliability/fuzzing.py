"""Random requests by the OpenAPI document, against a service in this process: `python -m … SEED COUNT`.

Written to standard output: how often each status came, and what came that must not.
"""

import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from penstock.core.ranges import Address
from penstock.service.app import Service
from penstock.service.auth.authenticator import authenticator_of
from penstock.service.auth.development import DevelopmentKey
from penstock.service.egress.egress import Egress
from penstock.service.limits import Message
from penstock.service.openapi import document
from penstock.service.tenants.audit import Audit
from penstock.stores.memory import MemoryStore

LEAVES_AFTER: Final = 0.02
"""Seconds after which the client goes away: streams and long polls would take their time."""
PLACES: Final = 4
"""Each request is sent as it was drawn, and then about things that are there: it takes long to draw one."""
STUCK: Final = 60.0
"""Seconds after which a request that was left is said to be stuck."""

_NAMES: Final = re.compile(rb'"(?:id|name)":"([^"]{1,128})"')


class Fuzz:
    """A service and what it answered."""

    def __init__(self, seed: int) -> None:
        key = DevelopmentKey.make()
        store = MemoryStore()
        self.service = Service(
            store,
            authenticator=authenticator_of(None, None, key),
            audit=Audit(store),
            egress=Egress(resolve=_nowhere),
        )
        self.token = key.mint(tenants=["acme"], subject="a", scopes=["*"], seconds=3_600, now=time.time())
        self.chance = random.Random(seed)
        self.known = ["mail"]
        """Names that something has: random ones would hardly ever lead anywhere."""
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []

    def placed(self, case: Any) -> Any:
        """The same request, mostly about something that is there."""
        for name in case.path_parameters or {}:
            if self.chance.random() < 0.8:
                case.path_parameters[name] = "mail" if name == "queue" else self.chance.choice(self.known)
        return case

    async def ask(self, request: requests.PreparedRequest) -> None:
        """One request, over ASGI."""
        url = urlsplit(str(request.url))
        body = request.body if isinstance(request.body, bytes) else str(request.body or "").encode()
        headers = {name.lower(): value for name, value in request.headers.items()}
        headers["authorization"] = f"Bearer {self.token}"
        scope = {
            "type": "http",
            "method": request.method,
            "path": unquote(url.path, errors="replace"),
            "query_string": url.query.encode(),
            "headers": [(name.encode("latin-1"), _bytes(value)) for name, value in headers.items()],
        }
        gone, answer = asyncio.Event(), _Answer()
        parts = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if parts:
                return parts.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        task = asyncio.create_task(self.service(scope, receive, answer.send))
        await asyncio.wait([task], timeout=LEAVES_AFTER)
        gone.set()
        await asyncio.wait([task], timeout=STUCK)
        shown = f"{request.method} {request.url} {body[:300]!r}: {answer.status} {answer.body[:300]!r}"
        self.statuses[answer.status] += 1
        if answer.status in (200, 201) and (names := _NAMES.findall(answer.body)):
            self.known = [*self.known, *(name.decode() for name in names)][-30:]
        if not task.done() or task.exception() is not None or answer.is_wrong:
            self.wrong.append(shown)


class _Answer:
    def __init__(self) -> None:
        self.status = 0
        self.media = b""
        self.body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.media = dict(message["headers"]).get(b"content-type", b"")
        else:
            self.body += message.get("body", b"")

    @property
    def is_wrong(self) -> bool:
        """A fault of the service, or a refusal that is no problem document."""
        return self.status >= 500 or (self.status >= 400 and self.media != b"application/problem+json")


def fuzz(seed: int, count: int) -> Fuzz:
    """So many requests, spread over all operations, fit and unfit ones in turn."""
    loop = asyncio.new_event_loop()
    here = Fuzz(seed)
    loop.run_until_complete(here.service.open())
    schema = schemathesis.openapi.from_dict(document(here.service.routes))
    operations = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    rounds = 0
    while sum(here.statuses.values()) < count and not here.wrong:
        mode = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)[rounds % 2]
        share = max(3, (count - sum(here.statuses.values())) // (2 * PLACES * len(operations)))
        for operation in operations:
            _draw(loop, here, operation, mode, share, seed + rounds)
        rounds += 1
    loop.run_until_complete(here.service.close())
    return here


def _draw(
    loop: asyncio.AbstractEventLoop, here: Fuzz, operation: Any, mode: GenerationMode, share: int, seed: int
) -> None:
    try:
        strategy = operation.as_strategy(generation_mode=mode)

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=share,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(strategy)
        def send(case: Any) -> None:
            for number in range(PLACES):
                kwargs = (here.placed(case) if number else case).as_transport_kwargs(
                    base_url="http://service"
                )
                try:
                    request = requests.Request(**_plain(kwargs)).prepare()
                except (requests.RequestException, UnicodeError, ValueError):
                    return  # no client could send this
                loop.run_until_complete(here.ask(request))

        send()
    except (hypothesis.errors.Unsatisfiable, schemathesis.errors.SchemathesisError):
        return  # there is nothing of this kind, such as unfit input where there is no input


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    known = ("method", "url", "headers", "files", "data", "params", "auth", "cookies", "json")
    return {name: value for name, value in kwargs.items() if name in known}


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")


async def _nowhere(host: str, port: int) -> list[Address]:
    return []


def main(arguments: Iterable[str]) -> None:
    """Write what came."""
    seed, count = map(int, arguments)
    found = fuzz(seed, count)
    print(json.dumps({"statuses": found.statuses, "wrong": found.wrong[:10]}))


if __name__ == "__main__":
    main(sys.argv[1:])
