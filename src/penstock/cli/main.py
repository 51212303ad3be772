"""The entry point: runs a command, and turns every error into one line and an exit code."""

import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

from penstock.core.errors import ConfigError, InvalidError, PenstockError

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0, 1 (failed), 2 (wrong usage) or 130 (interrupted)."""
    _open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["--version"], ["-V"]):
        return _version()
    try:
        code = _invoke(given)
        sys.stdout.flush()
    except PenstockError as error:
        return _fail(error, given, USAGE if isinstance(error, InvalidError | ConfigError) else FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return FAILED
    except OSError as error:
        # Such as a full disk, which a traceback would not explain.
        _discard_output()
        return _fail(error, given, FAILED)
    except Exception as error:  # noqa: BLE001 (the last resort: a user gets a line, not a traceback)
        return _fail(error, given, FAILED)
    return code


def _version() -> int:
    # Printing the version does not load the commands.
    from importlib.metadata import version

    sys.stdout.write(f"penstock {version('penstock')}\n")
    return 0


def _invoke(given: list[str]) -> int:
    import typer

    usage_error: type[Exception] = typer.BadParameter.__bases__[0]
    try:
        return int(_command()(args=given, prog_name="penstock", standalone_mode=False) or 0)
    except usage_error as error:
        return _usage(error, given)
    except typer.Abort:
        sys.stderr.write("penstock: aborted\n")
        return FAILED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED


@cache
def _command() -> Any:
    """All commands; built once, because that takes longer than many commands."""
    import typer

    from penstock.cli.commands import build

    return typer.main.get_command(build())


def _usage(error: BaseException, given: list[str]) -> int:
    text = _without_secrets(str(getattr(error, "format_message", error.__str__)()), given)
    if type(error).__name__ == "NoArgsIsHelpError":
        # The message is the help text; it is empty if typer has printed the help in colours already.
        sys.stderr.write(text)
    else:
        _print_error(text)
    return USAGE


def _fail(error: Exception, given: list[str], code: int) -> int:
    if _wants_traceback(given):
        sys.stderr.write(_without_secrets("".join(traceback.format_exception(error)), given))
    is_known = isinstance(error, PenstockError | OSError)
    message = str(error) if is_known else f"{type(error).__name__}: {error}"
    _print_error(_without_secrets(message, given) or type(error).__name__)
    if not is_known and not _wants_traceback(given):
        _print_error("this is a bug in Penstock; run the command with --debug to see where")
    return code


def _print_error(text: str) -> None:
    sys.stderr.write(f"penstock: error: {' '.join(text.split())}\n")


def _without_secrets(text: str, given: list[str]) -> str:
    """The text without the secrets of URLs among the arguments.

    Errors of the argument parser repeat arguments, which may be URLs in the wrong place.
    """
    from penstock.core.store_url import hide_secrets

    for each in given:
        if "://" in each or "password=" in each:
            url = re.sub(r"^--?[a-z-]+=", "", each)
            text = hide_secrets(text, url)
    return text


def _wants_traceback(given: list[str]) -> bool:
    if "--debug" in given:
        return True
    from penstock import settings

    # An error in the settings is the one being printed, or not worth another line.
    with suppress(PenstockError):
        return settings.load().debug
    return False


def _open_closed_streams() -> None:
    """Open closed standard streams: otherwise a socket may get their number, which asyncio refuses."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # os.open takes the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _discard_output() -> None:
    # Buffered output must not be written when the interpreter exits.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
