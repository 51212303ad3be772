"""What commands about the HTTP service share."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import ConfigError


def who() -> str:
    """Who sits at this command line, for the audit log."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError, ImportError):
        return "command line"


@contextmanager
def needs_service() -> Iterator[None]:
    """Say how to get what is missing, where an import fails for it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("penstock"):
            raise
        raise ConfigError(
            f"the service needs the package {error.name}: pip install 'penstock[service]'"
        ) from error
