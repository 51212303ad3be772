"""What commands about the HTTP service share: the user, the development key, the missing package."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError, OptionError
from penstock.core.extras import install_command

if TYPE_CHECKING:
    from penstock.service.auth.development import DevelopmentKey


def operator_name() -> str:
    """The user of this command line, for the audit log."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError, ImportError):
        return "command line"


@contextmanager
def needs_service() -> Iterator[None]:
    """If an import fails for a missing package, raise a ConfigError that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("penstock"):
            raise
        raise ConfigError(
            f"the service needs the package {error.name}: {install_command('service')}"
        ) from error


def development_key(text: str | None, file: str | None) -> "DevelopmentKey | None":
    """The development key in the text, or else in the file; None if both are None."""
    from penstock.service.auth.development import DevelopmentKey

    if text is None and file is not None:
        try:
            text = Path(file).expanduser().read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise OptionError("--key-file", file, f"a file with a development key ({why})") from None
    return None if text is None else DevelopmentKey.read(text)
