"""The metrics of the service, for operators."""

from typing import Final

from penstock.core.job import QueueRef
from penstock.metrics.families import MEDIA_TYPE
from penstock.service.errors import ForbiddenError, NotFoundError
from penstock.service.principal import Principal, Verb
from penstock.service.request import Request
from penstock.service.responses import EncodedBody
from penstock.service.routing import Routes
from penstock.stores.values import EVERYONE

routes: Final = Routes()


@routes.get("/metrics", Verb.READ, media=MEDIA_TYPE)
async def metrics(request: Request) -> EncodedBody:
    """Return the metrics of the service for Prometheus. For operators: they see the queues of their tenants.

    The values of the store are those of an earlier sample, marked as stale, while it does not answer.
    """
    principal = request.principal
    if not principal.tenants:
        raise ForbiddenError("metrics are for operators: a token with the claim `tenants`")
    shown = request.service.exposition
    if shown is None:
        raise NotFoundError("this service counts no metrics: the extra `prometheus` is not installed")
    sees_all = EVERYONE in principal.tenants and principal.may(Verb.READ, EVERYONE)
    text = await shown.text(None if sees_all else lambda queue: _sees(principal, queue))
    return EncodedBody(text, MEDIA_TYPE)


def _sees(principal: Principal, queue: QueueRef) -> bool:
    is_own = EVERYONE in principal.tenants or queue.tenant in principal.tenants
    return is_own and principal.may(Verb.READ, queue.name)
