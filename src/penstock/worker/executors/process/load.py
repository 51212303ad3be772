"""Importing the worker's app in another process."""

import importlib
import importlib.util
import os
import shutil
import sys
from functools import reduce
from typing import Any, Protocol

from penstock.core.errors import ConfigError, PenstockError
from penstock.sandbox.confine import Mode, Plan, prepare
from penstock.sandbox.permissions import Permissions
from penstock.tasks.registry import Registry
from penstock.worker.executors.process.wire import Start


class App(Protocol):
    """What a child needs of an app."""

    registry: Registry

    def forget_store(self) -> None:
        """Have neither store nor client from now on."""
        ...


class Importing:
    """Whether this process is a fork server that imports its app."""

    is_under_way = False


def load(start: Start) -> App:
    """The app, from its module or script; whatever importing raises."""
    sys.path[:] = start.path
    Importing.is_under_way = True
    try:
        module = importlib.import_module(start.module) if start.module else _script(start.script or "")
        for name in start.imports:
            importlib.import_module(name)
        if start.module and start.script:
            _script(start.script)
    finally:
        Importing.is_under_way = False
    try:
        app: Any = reduce(getattr, start.app.split("."), module)
    except AttributeError:
        raise ConfigError(
            f"{start.module or start.script} has no {start.app!r} when it is imported: make the app at the "
            "top level of a module"
        ) from None
    app.registry.freeze()
    loaded: App = app
    return loaded


def check_tasks(app: App, start: Start) -> None:
    """ConfigError where the app that was imported lacks a task that its worker has."""
    lacking = [name for name in start.tasks if app.registry.get(name) is None]
    if lacking:
        imported = ", ".join(filter(None, (start.module, *start.imports, start.script)))
        raise ConfigError(
            f"processes would not know the task {lacking[0]!r}: it is not there once {imported} is imported; "
            "define handlers that run in processes at the top level of a module"
        )


def plans(registry: Registry) -> dict[str, Plan]:
    """How each task with permissions is confined; ConfigError where this machine cannot."""
    found: dict[str, Plan] = {}
    # Each is tried out, which takes a moment.
    made: dict[tuple[Permissions, Mode], Plan] = {}
    for name in registry.names():
        asked = registry.require(name).execution
        if asked.permissions is not None:
            wanted = (asked.permissions, asked.sandbox or "strict")
            try:
                found[name] = made[wanted] = made.get(wanted) or prepare(*wanted)
                if asked.program is not None:
                    _check_run(asked.program[0], asked.permissions)
            except PenstockError as error:
                raise ConfigError(f"task {name!r}: {error}") from None
    return found


def _check_run(program: str, permissions: Permissions) -> None:
    """ConfigError when the permissions do not let the task's own program start."""
    allowed = {os.path.realpath(shutil.which(each) or each) for each in permissions.run}
    if os.path.realpath(shutil.which(program) or program) not in allowed:
        raise ConfigError(f"its program {program!r} is not among its permissions: add run=[{program!r}]")


def _script(path: str) -> Any:
    """A script as a module of another name, so that what is under `if __name__ == "__main__"` is left out."""
    name = "__penstock_main__"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = sys.modules["__main__"] = module
    spec.loader.exec_module(module)
    return module
