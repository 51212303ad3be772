"""From what a user writes to what it names: an app in a module, a store behind a url."""

import importlib
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Final

import penstock
from penstock.app.app import Penstock
from penstock.core.errors import ConfigError
from penstock.stores.open import open_store, sqlite_path
from penstock.stores.protocol import Store

__all__ = ["load_app", "open_store", "refuse_memory", "refuse_missing_file", "refuse_missing_schema"]

_MAKES: Final = "a worker or an enqueue with --declare makes it"


def refuse_missing_file(url: str | None) -> None:
    """ConfigError for a SQLite file that is not there: looking at it must not make it."""
    if url is not None and url.startswith("sqlite://") and not (path := Path(sqlite_path(url))).exists():
        shown = url.partition("?")[0]
        raise ConfigError(f"{shown}: there is no such file as {path.absolute()}; {_MAKES}")


async def refuse_missing_schema(url: str | None) -> None:
    """The same for a schema in PostgreSQL."""
    if url is None or url.partition("://")[0] not in {"postgresql", "postgres"}:
        return
    from penstock.stores.postgres.owner import SchemaOwner

    owner = SchemaOwner(url)
    if (await owner.look()).version == 0:
        raise ConfigError(f"{owner.place}: there is no schema {owner.name} with Penstock's tables; {_MAKES}")


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
    _refuse_path(reference, module_name, attribute)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(f"app {reference!r}: no module {error.name!r} here or on the path") from error
        raise _failed(reference, module_name, str(error), error) from error
    except Exception as error:
        # The user's own module failed: its error in one line, the traceback with --debug.
        raise _failed(reference, module_name, f"{type(error).__name__}: {error}", error) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"app {reference!r}: module {module_name} has no {attribute!r}")
        found = getattr(found, part)
    if not isinstance(found, Penstock):
        kind = "None" if found is None else f"an object of type {type(found).__name__}"
        raise ConfigError(f"app {reference!r}: found {kind}, wanted a Penstock")
    found.reference = reference
    return found


def _refuse_path(reference: str, module: str, attribute: str) -> None:
    """ConfigError for the path of a file, with the module that may be meant."""
    path = Path(module)
    if not (len(path.parts) > 1 or module.startswith(".") or (path.suffix == ".py" and path.is_file())):
        return
    parts = path.with_suffix("").parts if path.suffix == ".py" else path.parts
    inside = not path.is_absolute() and ".." not in parts
    meant = f"{'.'.join(parts) if inside else path.stem}:{attribute}"
    where = "" if inside else f" in the directory {path.parent}"
    raise ConfigError(f"app: found the path {reference!r}, wanted a module, such as {meant}{where}")


def _failed(reference: str, module: str, what: str, error: Exception) -> ConfigError:
    place = _place(error)
    at = "" if place is None else f"at {place}; "
    return ConfigError(f"app {reference!r}: importing {module} failed: {what} ({at}--debug shows more)")


def _place(error: Exception) -> str | None:
    """File and line of the innermost frame in the user's own code, if there is any."""
    others = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    others += ["<frozen", str(Path(penstock.__file__).parent)]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(tuple(others)):
            path = Path(frame.filename)
            near = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            return f"{near}:{frame.lineno}"
    return None
