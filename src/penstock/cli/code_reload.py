"""`penstock worker --reload`: new worker processes when the code of the app changes, for development."""

import asyncio
import importlib
import logging
import sys
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command
from penstock.worker.processes.supervisor import Supervisor

_LOGGER: Final = logging.getLogger("penstock.worker")
_LOAD: Final = (
    "import sys\n"
    "from penstock.cli.loading import load_app\n"
    "from penstock.core.errors import PenstockError\n"
    "try:\n"
    "    load_app(sys.argv[1])\n"
    "except PenstockError as error:\n"
    "    sys.exit(str(error))\n"
)
LOAD_SECONDS: Final = 60.0
"""Time that the changed code has to be imported."""


def refuse_missing_watcher() -> None:
    """ConfigError where the package that watches files is missing."""
    _watchfiles()


async def reload_on_change(app: str, supervisor: Supervisor) -> None:
    """Replace the processes whenever a Python file below the current directory changes.

    Code that cannot be loaded replaces nothing: the error is shown, and the old processes go on.
    """
    watchfiles = _watchfiles()
    async for changes in watchfiles.awatch(Path.cwd(), watch_filter=watchfiles.PythonFilter()):
        names = sorted({Path(path).name for _, path in changes})
        if (error := await _load_error(app)) is not None:
            _LOGGER.error("the changed code cannot be loaded, the old processes go on: %s", error)
            continue
        _LOGGER.info("%s changed: starting new worker processes", ", ".join(names[:5]))
        supervisor.replace_all()


async def _load_error(app: str) -> str | None:
    """Why the app cannot be loaded in a process of its own; None where it can."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-c",
        _LOAD,
        app,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"importing it takes longer than {LOAD_SECONDS:g} s"
    if process.returncode == 0:
        return None
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"importing it ended with status {process.returncode}"


def _watchfiles() -> Any:
    try:
        return importlib.import_module("watchfiles")
    except ModuleNotFoundError:
        raise ConfigError(f"--reload needs the package watchfiles: {install_command('reload')}") from None
