"""Every route, one module per noun."""

from typing import Final

from penstock.service.routes import (
    bulk,
    claims,
    dead_letters,
    events,
    flows,
    health,
    jobs,
    queues,
    schedules,
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
    schedules,
    flows,
    dead_letters,
    events,
    workers,
    webhooks,
    health,
    store,
)
ROUTES: Final[list[Route]] = [row for module in _MODULES for row in module.routes]
