"""Every route, one module per noun."""

from typing import Final

from penstock.service.routes import health, store
from penstock.service.routing import Route

ROUTES: Final[list[Route]] = [row for module in (health, store) for row in module.routes]
