"""What commands about the HTTP service share."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError, OptionError
from penstock.core.extras import install_command

if TYPE_CHECKING:
    from penstock.service.auth.development import DevelopmentKey


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
            f"the service needs the package {error.name}: {install_command('service')}"
        ) from error


def development_key(text: str | None, file: str | None) -> "DevelopmentKey | None":
    """The development key that was given or is in the file; None when neither is named."""
    from penstock.service.auth.development import DevelopmentKey

    if text is None and file is not None:
        try:
            text = Path(file).expanduser().read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise OptionError("--key-file", file, f"a file with a development key ({why})") from None
    return None if text is None else DevelopmentKey.read(text)
