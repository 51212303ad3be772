"""A service whose limits ask for more files than its process may open: `python -m …few_files`."""

import asyncio
import json

from penstock.service.app import Service
from penstock.service.limits import Limits
from penstock.service.server import Server, listen
from penstock.stores.memory import MemoryStore
from penstock.telemetry import logs
from tests.service.kit import HeaderAuthenticator


async def _serve() -> None:
    logs.configure(json=False, level="warning")
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator(), limits=Limits(head_timeout=600))
    with listen("127.0.0.1", 0) as bound:
        async with service:
            print(json.dumps({"port": bound.getsockname()[1]}), flush=True)
            await Server(service, grace=1).serve([bound])


if __name__ == "__main__":
    asyncio.run(_serve())
