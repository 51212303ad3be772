"""How a coroutine function becomes a command of the command line."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec

import typer
from typer.core import TyperCommand, TyperGroup

from penstock import settings as all_settings
from penstock.cli.command_context import CommandContext
from penstock.cli.options import GLOBAL, with_default_in_help

P = ParamSpec("P")


class _Command(TyperCommand):
    """A command whose flags show no type in its help."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, as click asks for them."""
        return _without_flag_types(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group of commands whose flags show no type in its help."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, as click asks for them."""
        return _without_flag_types(super().get_params(ctx))


def command_group(text: str, **more: Any) -> typer.Typer:
    """An empty group of commands; `text` is its help."""
    return typer.Typer(help=text, no_args_is_help=True, cls=CommandGroup, **more)


def command(
    group: typer.Typer, name: str, *, prefix: str | None = None, fast: bool = False, **more: Any
) -> Callable[
    [Callable[Concatenate[CommandContext, P], Awaitable[None]]],
    Callable[Concatenate[CommandContext, P], Awaitable[None]],
]:
    """Make a coroutine function a command, with the options that every command has.

    Parameters that are settings of the group `prefix` are resolved as such: the function reads them from
    `context.settings`, and the parameters only declare the flags. A `fast` command runs on uvloop if that is
    installed.
    """

    def register(
        function: Callable[Concatenate[CommandContext, P], Awaitable[None]],
    ) -> Callable[Concatenate[CommandContext, P], Awaitable[None]]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        setting_of = {each.name: f"{prefix}.{each.name}" for each in own}
        known = all_settings.names()
        setting_of = {each: setting for each, setting in setting_of.items() if setting in known}
        setting_of |= {each.name: each.name for each in own if each.name in GLOBAL}

        def invoke(context: typer.Context, **given: Any) -> None:
            flags = dict(context.obj or {})
            global_flags = {each.name: given.pop(each.name) for each in global_parameters}
            flags |= {each: value for each, value in global_flags.items() if value is not None}
            flags |= {
                setting: value for each, setting in setting_of.items() if (value := given[each]) is not None
            }
            config = flags.pop("config", None)
            command_context = CommandContext(all_settings.load(flags, config=config))
            with asyncio.Runner(loop_factory=_uvloop_factory() if fast else None) as runner:
                runner.run(_awaited(function(command_context, **given)))  # type: ignore[call-arg]

        global_parameters = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for each, kind in GLOBAL.items()
            if each not in {parameter.name for parameter in own}
        ]
        own_parameters = [
            with_default_in_help(each.replace(kind=inspect.Parameter.KEYWORD_ONLY)) for each in own
        ]
        first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY, annotation=typer.Context)
        parameters = [first, *own_parameters, *global_parameters]
        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoke.__doc__ = _unwrapped(function.__doc__ or "")
        invoke.__annotations__ = {each.name: each.annotation for each in parameters}
        group.command(name, cls=_Command, **more)(invoke)
        return function

    return register


def _without_flag_types(parameters: Any) -> Any:
    # typer prints `<bool>` beside a flag, which takes no value.
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


def _unwrapped(text: str) -> str:
    """The text with one line per paragraph, which the help then wraps to the width of the terminal."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


async def _awaited(work: Awaitable[None]) -> None:
    await work
