"""Health checks of the service and its store. They need no token and reveal nothing about a tenant."""

import asyncio
from typing import Final

import msgspec

from penstock.core.errors import StoreError
from penstock.service.request import Request
from penstock.service.responses import EncodedBody, Response
from penstock.service.routing import Routes

routes: Final = Routes()
READY_TIMEOUT: Final = 2.0


class Health(msgspec.Struct, frozen=True):
    """`status` is ok, or names what is missing."""

    status: str


@routes.get("/health/live", None)
async def live(request: Request) -> Health:
    """Report that the process answers."""
    return Health("ok")


@routes.get("/health/ready", None, also=(503,))
async def ready(request: Request) -> Response[Health]:
    """Report whether the store answers and the service accepts requests; 503 while it does not."""
    if request.service.is_stopping:
        return Response(Health("stopping"), 503)
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            await request.store.clock.now()
    except (StoreError, TimeoutError):
        return Response(Health("the store does not answer"), 503)
    return Response(Health("ok"))


@routes.get("/v1/openapi.json", None)
async def openapi(request: Request) -> EncodedBody:
    """Return the OpenAPI document."""
    return EncodedBody(request.service.openapi)
