"""Is the service there, and can it serve? Neither asks for a token nor tells anything of a tenant."""

import asyncio
from typing import Final

import msgspec

from penstock.core.errors import StoreError
from penstock.service.answers import Answer, Bytes
from penstock.service.ask import Ask
from penstock.service.routing import Routes

routes: Final = Routes()
READY_TIMEOUT: Final = 2.0


class Health(msgspec.Struct, frozen=True):
    """`status` is ok, or says what is missing."""

    status: str


@routes.get("/health/live", None)
async def live(ask: Ask) -> Health:
    """Say that the process answers."""
    return Health("ok")


@routes.get("/health/ready", None, also=(503,))
async def ready(ask: Ask) -> Answer[Health]:
    """Say whether the store answers and the service is not stopping; 503 when it is no time for requests."""
    if ask.service.is_stopping:
        return Answer(Health("stopping"), 503)
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            await ask.store.now()
    except (StoreError, TimeoutError):
        return Answer(Health("the store does not answer"), 503)
    return Answer(Health("ok"))


@routes.get("/v1/openapi.json", None)
async def openapi(ask: Ask) -> Bytes:
    """Give this document."""
    return Bytes(ask.service.openapi)
