"""Every route, one module per noun.

A handler's signature is its path, parameters and body in the OpenAPI document, on the reference page and in
the tests; no route reads another tenant's queues. Begin reading in `jobs.py`; `service/routing.py` calls the
handlers.
"""

from typing import Final

from penstock.service.routes import (
    bulk,
    claims,
    dead_letters,
    events,
    flows,
    health,
    jobs,
    metrics,
    queues,
    scaling,
    schedules,
    stats,
    store,
    webhooks,
    workers,
)
from penstock.service.routing import Route

_MODULES: Final = (
    jobs,
    bulk,
    claims,
    queues,
    stats,
    schedules,
    flows,
    dead_letters,
    events,
    workers,
    scaling,
    webhooks,
    health,
    metrics,
    store,
)
ROUTES: Final[list[Route]] = [row for module in _MODULES for row in module.routes]
