"""Options of commands: their help with its default, and the global options."""

import inspect
from copy import copy
from typing import Annotated, Any, Final, get_args, get_origin

import typer
from typer.models import OptionInfo

from penstock.settings import Settings, flag_of, variable_of

GLOBAL_PANEL: Final = "Global options"


def setting(name: str, text: str, *declarations: str, default: str | None = None, **more: Any) -> Any:
    """An option for a setting. Its help names the variable and the default, which is that of the setting.

    `default` says it for a setting that is None until something else, such as the app, decides.
    """
    value: Any = Settings()
    for part in name.split("."):
        value = getattr(value, part)
    said = default if value is None else _shown(name, value)
    return typer.Option(
        *(declarations or (flag_of(name),)),
        help=f"{text}. {default_sentence(said)} [{variable_of(name)}]",
        show_default=False,
        **more,
    )


def default_sentence(default: object) -> str:
    """The sentence of a help text that tells the default of an option.

    >>> default_sentence(50), default_sentence(False), default_sentence(None)
    ('Default: 50.', 'Default: off.', 'No default.')
    """
    match default:
        case None:
            return "No default."
        case bool():
            return f"Default: {'on' if default else 'off'}."
        case inspect.Parameter.empty:
            return "Required."
        case _:
            return f"Default: {default}."


def with_default_in_help(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter of a command, with its default told by the help of its option.

    A default in words, given as `show_default`, goes before the value. Arguments, and options whose help
    tells the default already, stay as they are.
    """
    if get_origin(parameter.annotation) is not Annotated:
        return parameter
    kind, info, *rest = get_args(parameter.annotation)
    if not isinstance(info, OptionInfo) or info.show_default is False:
        return parameter
    told = info.show_default if isinstance(info.show_default, str) else parameter.default
    described = copy(info)
    described.help = f"{(info.help or '').rstrip('.')}. {default_sentence(told)}"
    described.show_default = False
    return parameter.replace(annotation=Annotated[(kind, described, *rest)])


def _shown(name: str, value: object) -> object:
    """A default as one would write it on the command line."""
    if isinstance(value, float) and name.rpartition(".")[2] in ("sweep", "shutdown_timeout"):
        return f"{value / 60:g}m" if value % 60 == 0 else f"{value:g}s"
    return value


def _global(name: str, text: str, *declarations: str, **more: Any) -> Any:
    return setting(name, text, *declarations, rich_help_panel=GLOBAL_PANEL, **more)


GLOBAL: Final[dict[str, Any]] = {
    "url": Annotated[
        str | None,
        _global(
            "url",
            "URL of the store, such as sqlite:///jobs.db or redis://localhost",
            default="the store of the app",
            metavar="URL",
        ),
    ],
    "tenant": Annotated[
        str | None,
        _global(
            "tenant",
            "Tenant that owns the queues, such as acme",
            default="the tenant of the app, or default",
            metavar="NAME",
        ),
    ],
    "app": Annotated[
        str | None,
        _global("app", "App to load tasks and the store from, such as shop.jobs:app", metavar="MODULE:APP"),
    ],
    "json": Annotated[
        bool | None,
        _global("json", "Print JSON for programs: one object, or one object per line for a list", "--json"),
    ],
    "absolute_times": Annotated[
        bool | None,
        _global(
            "absolute_times",
            "Print dates and times in full, such as 2026-01-31T12:00:00.000+01:00, not as '5 min ago'",
            "--absolute-times",
        ),
    ],
    "debug": Annotated[bool | None, _global("debug", "Print the traceback of an error", "--debug")],
    "config": Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            show_default=False,
            rich_help_panel=GLOBAL_PANEL,
            help="TOML file with settings. Default: penstock.toml, or else pyproject.toml. [PENSTOCK_CONFIG]",
        ),
    ],
}
"""Options accepted before and after every command, except where a command has its own of that name."""
