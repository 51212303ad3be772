"""The HTTP service: jobs of many tenants, on any store, for producers and workers in any language.

Nothing crosses tenants, every request is authorised by the scopes of its token, and bad input gets a problem
document that names the field. Begin reading in `app.py`, then `request.py` and one module of `routes/`;
`openapi.py` derives the OpenAPI document from the routes.

Names are imported when they are first used: nothing of a server is needed to import this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command

if TYPE_CHECKING:
    from penstock.service.app import Service
    from penstock.service.limits import Limits

_HOMES: Final = {"Limits": "limits", "Service": "app"}

__all__ = ["Limits", "Service"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.service' has no attribute {name!r}")
    try:
        return getattr(import_module(f"penstock.service.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("penstock"):
            raise
        raise ConfigError(
            f"the service needs the package {error.name}: {install_command('service')}"
        ) from error
