"""The schedules of an app: declared in its code, or handled while it runs."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar, Unpack, cast

import msgspec

from penstock.app.planning import ScheduleOptions, When, check_options, make_schedule, spec_of
from penstock.client.client import unknown_queue
from penstock.core.cron.schedule import Schedule
from penstock.core.cron.spec import MAX_EVERY_MS, Cron, Every, Spec
from penstock.core.errors import ConfigError, OptionError
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.schedules.repository import ScheduleInfo, ScheduleRepository
from penstock.stores.protocol import Store
from penstock.tasks.call import Call, check_own, check_sender
from penstock.tasks.handle import JobHandle
from penstock.tasks.task import Task

_LOGGER: Final = logging.getLogger("penstock.schedules")
_SECONDS: Final = {"seconds": 1, "minutes": 60, "hours": 3600}
_INTERVAL: Final = "a timedelta, or seconds=, minutes= or hours=, as in every(seconds=30)"
NAMED: Final = 20
"""Schedules that the log names; of the others it tells the number."""
S = TypeVar("S", bound=Task[..., ..., Any] | Call[Any])


class Declaring(ScheduleOptions, total=False):
    """What a declaration in code can say beside that."""

    name: str
    """The name of the task if not given; unique in the tenant."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class Home(Protocol):
    """The app, as far as schedules need it."""

    tenant: str

    @property
    def is_open(self) -> bool: ...

    @property
    def store(self) -> Store: ...

    @property
    def queues(self) -> list[str]: ...

    def job(self, queue: str, job: str) -> JobHandle[Any]: ...


class Declared:
    """A schedule in code. Arguments are encoded when first needed: types may be defined further down."""

    def __init__(self, name: str, call: Callable[[], Call[Any]], spec: Spec, limits: ScheduleOptions) -> None:
        self.name = name
        self._call = call
        self._spec = spec
        self._limits = limits
        with suppress(ConfigError):
            self.made()

    def made(self) -> tuple[str, Schedule]:
        """The queue and the schedule."""
        call = self._call()
        schedule = make_schedule(self.name, self._spec, call, **self._limits)
        return call.queue, msgspec.structs.replace(schedule, declared=True)


class Schedules:
    """`app.schedules`. What changes or reads the store needs the app to be open."""

    def __init__(self, app: Home, sender: object) -> None:
        self._app = app
        self._sender = sender
        self._declared: dict[str, Declared] = {}

    # In code

    def cron(self, expression: str, *, zone: str = "UTC", **options: Unpack[Declaring]) -> Callable[[S], S]:
        """Run a task at the times of a cron expression: over its decorator, or around a call of it.

        >>> from penstock import Penstock
        >>> app = Penstock("memory://")
        >>> @app.cron("0 3 * * *", zone="Europe/Berlin")
        ... @app.task
        ... def report(region: str = "eu") -> None: ...
        >>> _ = app.cron("0 4 * * *", name="report-us")(report.call("us"))
        >>> app.schedules.declared
        ['report', 'report-us']
        """
        _check_options(options, ["zone"])
        return self._declaring(Cron.of(expression, zone), options)

    def every(
        self,
        interval: timedelta | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        **options: Unpack[Declaring],
    ) -> Callable[[S], S]:
        """Run a task at an interval, counted from 1970 so that all processes agree; used as `cron`."""
        units = {"seconds": seconds, "minutes": minutes, "hours": hours}
        _check_options(options, units)
        given: object = interval
        if not isinstance(given, timedelta) and (given is not None or not any(units.values())):
            raise OptionError("interval", given, _INTERVAL)
        length = 0.0 if interval is None else interval.total_seconds()
        for unit, number in units.items():
            length += _number(unit, number) * _SECONDS[unit]
        return self._declaring(Every.of(length), options)

    @property
    def declared(self) -> list[str]:
        """The names of the schedules in code, in order."""
        return sorted(self._declared)

    def queues(self) -> set[str]:
        """The names of the queues that schedules in code have jobs for."""
        return {each.made()[0] for each in self._declared.values()}

    def _declaring(self, spec: Spec, options: Declaring) -> Callable[[S], S]:
        args, kwargs = tuple(options.pop("args", ())), dict(options.pop("kwargs", {}))
        name = options.pop("name", None)
        limits = cast(ScheduleOptions, options)
        check_options(limits)

        def declare(target: S) -> S:
            if isinstance(target, Call):
                if args or kwargs:
                    raise ConfigError("a call has its arguments already: give none to its schedule")
                called = target
                check_own(self._sender, [called])
                self._add(Declared(name or target.task, lambda: called, spec, limits))
            elif isinstance(target, Task):
                task = target
                check_sender(self._sender, task.sender, task.name, task.queue)
                self._add(Declared(name or task.name, lambda: task.call(*args, **kwargs), spec, limits))
            else:
                raise ConfigError(
                    f"{target!r} cannot be scheduled: it is no task; the schedule stands above @app.task"
                )
            return target

        return declare

    def _add(self, declared: Declared) -> None:
        check_name("schedule", declared.name)
        if declared.name in self._declared:
            raise ConfigError(f"two schedules are named {declared.name!r}; give one a name=")
        self._declared[declared.name] = declared

    async def sync(self) -> list[str]:
        """Put the schedules that the code declares and the store has otherwise; their names.

        Done when a worker starts. A schedule that is no longer in the code stays until it is removed, as
        `prune` does.
        """
        return await self._book().put_all([each.made() for each in self._declared.values()])

    async def undeclared(self) -> list[ScheduleInfo]:
        """The stored schedules of this app's queues that code declared once and that this app does not."""
        return [
            each
            for each in await self._book().list()
            if each.schedule.declared and each.queue in self._app.queues and each.name not in self._declared
        ]

    async def prune(self) -> list[ScheduleInfo]:
        """Remove the schedules that `undeclared` names; jobs that they made stay.

        Another app that shares a queue with this one may declare them: it puts them again with its next
        worker.
        """
        book = self._book()
        return [await book.remove(each.name) for each in await self.undeclared()]

    async def name_undeclared(self) -> None:
        """Log the names of what `prune` would remove; done when a worker starts."""
        names = [each.name for each in await self.undeclared()]
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            _LOGGER.warning(
                "schedules that the app no longer declares still fire: %s%s; "
                "`penstock schedules prune` removes them",
                ", ".join(names[:NAMED]),
                more,
                extra={"tenant": self._app.tenant},
            )

    # At run time

    async def put(
        self, name: str, when: When, call: Call[Any], *, zone: str = "UTC", **limits: Unpack[ScheduleOptions]
    ) -> bool:
        """Keep a schedule, in place of one of that name; False when it is there as it should be.

        `when` is a cron expression for the clocks of the zone, or a timedelta. Where only the job changed, it
        goes on from the instant it waits for; where its time changed, from now.
        """
        book = self._book()
        check_own(self._sender, [call])
        schedule = make_schedule(name, spec_of(when, zone), call, **limits)
        queue = QueueRef(self._app.tenant, call.queue)
        if call.queue not in self._app.queues and await self._app.store.queues.find_queue(queue) is None:
            raise unknown_queue(call.queue, self._app.queues)
        return await book.put(call.queue, schedule)

    async def show(self, name: str) -> ScheduleInfo:
        """One schedule; OptionError when there is none of that name, as in all that follow."""
        return await self._book().show(name)

    async def pause(self, name: str) -> ScheduleInfo:
        """Fire no more until resumed."""
        return await self._book().pause(name)

    async def resume(self, name: str) -> ScheduleInfo:
        """Fire again, from now on: instants that passed during the pause are not caught up."""
        return await self._book().resume(name)

    async def run_now(self, name: str) -> JobHandle[Any]:
        """Enqueue its job at once, beside its instants."""
        return self._app.job(*await self._book().run_now(name))

    async def remove(self, name: str) -> ScheduleInfo:
        """Forget the schedule; jobs it made stay. One that the code declares comes back with a worker."""
        return await self._book().remove(name)

    async def next_runs(self, name: str, count: int = 5) -> list[datetime]:
        """Its next instants in its zone, as if it were not paused."""
        return await self._book().next_runs(name, count)

    async def list(self) -> list[ScheduleInfo]:
        """All schedules of the tenant, by queue and name; also those that are not in the code."""
        return await self._book().list()

    def _book(self) -> ScheduleRepository:
        if not self._app.is_open:
            raise ConfigError("the app is not open: do this inside `async with app:`")
        return ScheduleRepository(self._app.store, self._app.tenant)


def _check_options(options: Declaring, others: Iterable[str]) -> None:
    """OptionError for an option that a declaration does not have; `others` are those of its time."""
    known = [*others, *Declaring.__annotations__]
    for name, value in options.items():
        if name not in known:
            raise OptionError(name, value, f"one of {', '.join(known)}")


def _number(unit: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_EVERY_MS:
        raise OptionError(unit, value, f"a number of {unit}")
    return value
