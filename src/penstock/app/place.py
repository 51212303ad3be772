"""What a fork server has to import so that it knows the app and the tasks that its worker knows."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.core.errors import ConfigError
from penstock.tasks.task import Task
from penstock.telemetry.logs import configured
from penstock.worker.executors.process.wire import Start

Tasks = Sequence[Task[..., ..., Any]]


def place_of(app: object, tasks: Tasks = (), reference: str | None = None) -> Start:
    """Where the app and the handlers of these tasks are; ConfigError when the app is not in a module.


    `reference` is the `module:app` that the worker was started with; without one the app is looked for.
    """
    level, is_json = configured()
    module, script, name = _found(app) if reference is None else _named(reference)
    modules = [getattr(task.function, "__module__", None) for task in tasks]
    if "__main__" in modules:
        main_module, main_script = _imported(sys.modules["__main__"])
        modules.append(main_module)
        script = script or main_script
    return Start(
        name,
        module,
        script,
        list(sys.path),
        level,
        is_json,
        imports=sorted({each for each in modules if each and each not in ("__main__", module)}),
        tasks=[task.name for task in tasks],
    )


def _named(reference: str) -> tuple[str | None, str | None, str]:
    module, _, name = reference.partition(":")
    return module, None, name


def _found(app: object) -> tuple[str | None, str | None, str]:
    """The module or the script that has the app, and its name there."""
    for module, name in _having(app):
        known, script = _imported(module)
        if known is not None or script is not None:
            return known, script, name
    raise ConfigError(
        "handlers in processes need an app that can be imported: make it at the top level of a module"
    )


def _imported(module: ModuleType) -> tuple[str | None, str | None]:
    """How another process gets the module: by its name, or from the file of a script."""
    if module.__name__ != "__main__":
        return module.__name__, None
    spec, path = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if spec is not None:
        return str(spec.name), None
    return None, None if path is None else str(Path(path).resolve())


def _having(app: object) -> list[tuple[ModuleType, str]]:
    """The modules that have the app, the script that is run last: another module is surer to be the same."""
    found = [
        (module, name)
        for module in list(sys.modules.values())
        # Some put other things than modules there.
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is app
    ]
    return sorted(found, key=lambda each: each[0].__name__ == "__main__")
