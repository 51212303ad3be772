"""Where an app is made, so that another process can import it."""

import sys
from pathlib import Path
from types import ModuleType

from penstock.core.errors import ConfigError
from penstock.telemetry.logs import configured
from penstock.worker.executors.process.wire import Start


def place_of(app: object) -> Start:
    """The module and the name of an app; ConfigError when it is not at the top level of one."""
    level, is_json = configured()
    for module, name in _named(app):
        script = None
        known = module.__name__
        if known == "__main__":
            spec = getattr(module, "__spec__", None)
            path = getattr(module, "__file__", None)
            if spec is None and path is None:
                continue
            known = "" if spec is None else str(spec.name)
            script = None if spec is not None else str(Path(path or "").resolve())
        return Start(name, known or None, script, list(sys.path), level, is_json)
    raise ConfigError(
        "handlers in processes need an app that can be imported: make it at the top level of a module"
    )


def _named(app: object) -> list[tuple[ModuleType, str]]:
    """The modules that have the app, the script that is run last: another module is surer to be the same."""
    found = [
        (module, name)
        for module in list(sys.modules.values())
        # Some put other things than modules there.
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is app
    ]
    return sorted(found, key=lambda each: each[0].__name__ == "__main__")
