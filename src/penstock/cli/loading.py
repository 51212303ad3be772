"""Loading the app that a reference names, and refusing stores that a command must not create."""

import importlib
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Final

import penstock
from penstock.app.app import Penstock
from penstock.core.errors import ConfigError
from penstock.stores.open import open_store
from penstock.stores.protocol import Store
from penstock.stores.registry import StoreKind, kind_of
from penstock.stores.sqlite.address import path_of

__all__ = ["load_app", "open_store", "refuse_memory", "refuse_missing_file", "refuse_missing_schema"]

_CREATED_BY: Final = "a worker or an enqueue with --declare creates it"


def refuse_missing_file(url: str | None) -> None:
    """Raise ConfigError if the SQLite file does not exist: reading commands must not create it."""
    if url is not None and kind_of(url) is StoreKind.SQLITE and not (path := Path(path_of(url))).exists():
        shown = url.partition("?")[0]
        raise ConfigError(f"{shown}: there is no such file as {path.absolute()}; {_CREATED_BY}")


async def refuse_missing_schema(url: str | None) -> None:
    """Raise ConfigError if the PostgreSQL schema does not exist: reading commands must not create it."""
    if url is None or kind_of(url) is not StoreKind.POSTGRES:
        return
    from penstock.stores.postgres.owner import SchemaOwner

    owner = SchemaOwner(url)
    if (await owner.look()).version == 0:
        raise ConfigError(
            f"{owner.shown}: there is no schema {owner.name} with Penstock's tables; {_CREATED_BY}"
        )


def refuse_memory(store: Store) -> None:
    """Raise ConfigError for a store in memory: its jobs would be lost when the command ends."""
    from penstock.stores.memory import MemoryStore

    if isinstance(store, MemoryStore):
        raise ConfigError(
            "memory:// exists in one process only, and this process ends now: name another store"
        )


def load_app(reference: str) -> Penstock:
    """The app at `module:attribute`; the module may be in the current directory."""
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
        raise _import_error(reference, module_name, str(error), error) from error
    except Exception as error:
        # The user's module raised: print its error in one line, and the traceback with --debug.
        raise _import_error(reference, module_name, f"{type(error).__name__}: {error}", error) from error
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
    """Raise ConfigError for the path of a file; the error names the module that is probably meant."""
    path = Path(module)
    if not (len(path.parts) > 1 or module.startswith(".") or (path.suffix == ".py" and path.is_file())):
        return
    parts = path.with_suffix("").parts if path.suffix == ".py" else path.parts
    inside = not path.is_absolute() and ".." not in parts
    meant = f"{'.'.join(parts) if inside else path.stem}:{attribute}"
    where = "" if inside else f" in the directory {path.parent}"
    raise ConfigError(f"app: found the path {reference!r}, wanted a module, such as {meant}{where}")


def _import_error(reference: str, module: str, what: str, error: Exception) -> ConfigError:
    frame = _innermost_user_frame(error)
    at = "" if frame is None else f"at {frame}; "
    return ConfigError(f"app {reference!r}: importing {module} failed: {what} ({at}--debug shows more)")


def _innermost_user_frame(error: Exception) -> str | None:
    """File and line of the innermost frame in the user's own code, if there is any."""
    others = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    others += ["<frozen", str(Path(penstock.__file__).parent)]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(tuple(others)):
            path = Path(frame.filename)
            near = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            return f"{near}:{frame.lineno}"
    return None
