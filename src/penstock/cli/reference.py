"""From what a user writes to what it names: an app in a module, a store behind a url."""

import importlib
import sys
from pathlib import Path
from urllib.parse import unquote

from penstock.app.app import Penstock
from penstock.core.errors import ConfigError
from penstock.stores.open import open_store
from penstock.stores.protocol import Store

__all__ = ["load_app", "open_store", "refuse_memory", "refuse_missing_file"]


def refuse_missing_file(url: str | None) -> None:
    """ConfigError for a SQLite file that is not there: looking at it must not make it."""
    scheme, _, rest = (url or "").partition(":///")
    path = Path(unquote(rest.partition("?")[0]))
    if scheme == "sqlite" and rest and not path.exists():
        makes = "a worker or an enqueue with --declare makes it"
        raise ConfigError(f"{url}: there is no such file as {path.absolute()}; {makes}")


def refuse_memory(store: Store) -> None:
    """ConfigError for a store in memory: what is written there is gone when the command ends."""
    from penstock.stores.memory import MemoryStore

    if isinstance(store, MemoryStore):
        raise ConfigError("memory:// lives in one process, and this one ends here: name a store that lasts")


def load_app(reference: str) -> Penstock:
    """The app at `module:attribute`; modules in the current directory are found too."""
    module_name, colon, attribute = reference.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError(f"app: found {reference!r}, wanted module:app, such as shop.jobs:app")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(f"app {reference!r}: no module {error.name!r} here or on the path") from error
        raise ConfigError(f"app {reference!r}: importing {module_name} failed: {error}") from error
    except Exception as error:
        # The user's own module failed: its error in one line, the traceback with --debug.
        raise ConfigError(
            f"app {reference!r}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"app {reference!r}: module {module_name} has no {attribute!r}")
        found = getattr(found, part)
    if not isinstance(found, Penstock):
        raise ConfigError(f"app {reference!r}: found a {type(found).__name__}, wanted a Penstock")
    return found
