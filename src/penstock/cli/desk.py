"""What a command starts from: settings, output, a store; and how a coroutine becomes a command."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from penstock import settings as all_settings
from penstock.app.app import Penstock
from penstock.bloom.filters import Filters
from penstock.cli.output import Output
from penstock.cli.reference import (
    load_app,
    open_store,
    refuse_memory,
    refuse_missing_file,
    refuse_missing_schema,
)
from penstock.core.errors import ConfigError, OptionError, UnknownQueueError
from penstock.core.job import DEFAULT_TENANT, QueueRef
from penstock.core.names import check_name
from penstock.settings import Settings, flag_of, variable_of
from penstock.stores.protocol import Store
from penstock.stores.ready import refuse_unready
from penstock.stores.values import QueueInfo

P = ParamSpec("P")


class Desk:
    """One invocation of a command."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.out = Output(json=settings.json)

    @cached_property
    def app(self) -> Penstock | None:
        """The app that was named, if any; OptionError when it is another tenant's."""
        if self.settings.app is None:
            return None
        app, said = load_app(self.settings.app), self.settings.tenant
        if said not in (None, app.tenant):
            raise OptionError("--tenant", said, f"{app.tenant!r}, the tenant of the app {self.settings.app}")
        return app

    @cached_property
    def filters(self) -> Filters:
        """The Bloom filters that the settings turn on."""
        return Filters.of(self.settings.bloom)

    def make_store(self) -> Store:
        """The store named by the settings, or else by the app they name; not opened yet."""
        if self.settings.url is not None:
            is_service = self.settings.url.startswith(("https://", "http://"))
            token: dict[str, Any] = (
                {"token": self.settings.token} if is_service and self.settings.token else {}
            )
            return open_store(self.settings.url, filters=self.filters, **token)
        if self.app is not None:
            return self.app.store
        raise ConfigError("no store is named: give --url, set PENSTOCK_URL, or put url in penstock.toml")

    def make_lasting_store(self) -> Store:
        """The same for what shall be there when this process has ended."""
        store = self.make_store()
        refuse_memory(store)
        return store

    @cached_property
    def tenant(self) -> str:
        """The tenant that was named, or else the app's."""
        if self.app is not None:
            return self.app.tenant
        return check_name("--tenant", self.settings.tenant or DEFAULT_TENANT)

    @asynccontextmanager
    async def store(self, *, may_be_new: bool = False, may_migrate: bool = True) -> AsyncIterator[Store]:
        """The store, open for the time of the block; what is missing is made only if it may be new.

        Tables of an older version are brought to this one if they may be, and refused otherwise.
        """
        store = self.make_lasting_store() if may_be_new else self.make_store()
        if not may_be_new:
            url = self.settings.url or (None if self.app is None else self.app.url)
            refuse_missing_file(url)
            await refuse_missing_schema(url)
            if url is not None and not may_migrate:
                await refuse_unready(url)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def ref(self, queue: str) -> QueueRef:
        """A queue of this tenant by its name."""
        return QueueRef(self.tenant, check_name("queue", queue))

    async def queue(self, store: Store, name: str) -> QueueInfo:
        """A queue that exists, or UnknownQueueError with the ones that do."""
        info = await store.queue(self.ref(name))
        if info is None:
            known = ", ".join(each.queue.name for each in await store.queues(self.tenant))
            raise UnknownQueueError(
                f"no queue {name!r} of tenant {self.tenant!r}; there are: {known or 'none'}"
            )
        return info

    async def queues(self, store: Store, name: str | None) -> list[QueueInfo]:
        """The queue of that name, or all queues of the tenant."""
        return await store.queues(self.tenant) if name is None else [await self.queue(store, name)]


def no_queue() -> ConfigError:
    """What to say where a task's queue is not known."""
    return ConfigError("no queue is named: give --queue, or --app with an app that knows the task")


def setting(name: str, text: str, *declarations: str, **more: Any) -> Any:
    """A command line option for a setting; its help names the variable."""
    return typer.Option(
        *(declarations or (flag_of(name),)), help=f"{text} [{variable_of(name)}]", show_default=False, **more
    )


def _everywhere(name: str, text: str, *declarations: str, **more: Any) -> Any:
    return setting(name, text, *declarations, rich_help_panel="Everywhere", **more)


GLOBAL: Final[dict[str, Any]] = {
    "url": Annotated[str | None, _everywhere("url", "The store, such as sqlite:///jobs.db", metavar="URL")],
    "tenant": Annotated[str | None, _everywhere("tenant", "The owner of the queues", metavar="NAME")],
    "app": Annotated[
        str | None, _everywhere("app", "The app, where its code is wanted", metavar="MODULE:APP")
    ],
    "json": Annotated[bool | None, _everywhere("json", "Write JSON for programs", "--json")],
    "debug": Annotated[bool | None, _everywhere("debug", "Show tracebacks", "--debug")],
    "config": Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            show_default=False,
            rich_help_panel="Everywhere",
            help="TOML settings instead of penstock.toml or pyproject.toml [PENSTOCK_CONFIG]",
        ),
    ],
}
"""Options that stand before or after the command."""


def command(
    group: typer.Typer, name: str, *, prefix: str | None = None, fast: bool = False, **more: Any
) -> Callable[
    [Callable[Concatenate[Desk, P], Awaitable[None]]], Callable[Concatenate[Desk, P], Awaitable[None]]
]:
    """Make a coroutine function a command with the options of all commands.

    With `prefix` those of its options that are settings of that group are resolved as such: the function gets
    them through `desk.settings` and its own parameters stand only for the flags. A `fast` command runs on
    uvloop where that is installed.
    """

    def register(
        work: Callable[Concatenate[Desk, P], Awaitable[None]],
    ) -> Callable[Concatenate[Desk, P], Awaitable[None]]:
        own = list(inspect.signature(work, eval_str=True).parameters.values())[1:]
        mine = {each.name: f"{prefix}.{each.name}" for each in own}
        mine = {each: full for each, full in mine.items() if full in all_settings.names()}
        mine |= {each.name: each.name for each in own if each.name in GLOBAL}

        def invoke(context: typer.Context, **given: Any) -> None:
            flags = dict(context.obj or {})
            shared_flags = {each.name: given.pop(each.name) for each in shared}
            flags |= {each: value for each, value in shared_flags.items() if value is not None}
            flags |= {full: value for each, full in mine.items() if (value := given[each]) is not None}
            config = flags.pop("config", None)
            desk = Desk(all_settings.load(flags, config=config))
            with asyncio.Runner(loop_factory=_fast_loop() if fast else None) as runner:
                runner.run(_awaited(work(desk, **given)))  # type: ignore[call-arg]

        shared = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for each, kind in GLOBAL.items()
            if each not in {parameter.name for parameter in own}
        ]
        named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY, annotation=typer.Context)
        invoke.__signature__ = inspect.Signature([context, *named, *shared])  # type: ignore[attr-defined]
        invoke.__doc__ = work.__doc__
        invoke.__annotations__ = {each.name: each.annotation for each in (context, *named, *shared)}
        group.command(name, **more)(invoke)
        return work

    return register


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


async def _awaited(work: Awaitable[None]) -> None:
    await work
