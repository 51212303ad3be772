"""Schedules, as requests put them and responses show them."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.schedule import Schedule
from penstock.core.cron.spec import Cron, Every, Spec
from penstock.core.errors import OptionError
from penstock.schedules.repository import ScheduleInfo
from penstock.service.wire.jobs import (
    BackoffOptions,
    Delays,
    Key,
    Moment,
    Name,
    Priority,
    Seconds,
    arguments,
    no_arguments,
)
from penstock.tasks.options import JobOptions


class ScheduleReplace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule and its job: it fires by `cron` in a `zone`, or `every` so many seconds."""

    queue: Name
    task: Name
    payload: msgspec.Raw = msgspec.field(default_factory=no_arguments)
    """The arguments by name: a JSON object."""
    cron: Annotated[str, Meta(max_length=200)] | None = None
    zone: Annotated[str, Meta(max_length=64)] = "UTC"
    every: Annotated[float, Meta(ge=1, le=31_622_400)] | None = None
    catch_up: CatchUp = CatchUp.LAST
    catch_up_limit: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    starts_at: Moment | None = None
    ends_at: Moment | None = None
    priority: Priority | UnsetType = UNSET
    key: Key | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    backoff: BackoffOptions | Delays | str | UnsetType = UNSET
    timeout: Seconds | UnsetType = UNSET
    retention: Seconds | UnsetType = UNSET

    def schedule(self, name: str) -> Schedule:
        """As the queue keeps it."""
        options = self._options
        more: dict[str, Any] = {} if self.catch_up_limit is None else {"catch_up_limit": self.catch_up_limit}
        return Schedule(
            name=name,
            spec=self._spec,
            task=self.task,
            payload=arguments(self.payload),
            options=options.policy,
            priority=options.tier,
            key=options.key,
            catch_up=self.catch_up,
            starts_at=_ms(self.starts_at),
            ends_at=_ms(self.ends_at),
            **more,
        )

    @property
    def _spec(self) -> Spec:
        if (self.cron is None) == (self.every is None):
            found = "neither" if self.cron is None else "both"
            raise OptionError("cron", found, "either cron or every")
        return Cron.of(self.cron, self.zone) if self.every is None else Every.of(self.every)  # type: ignore[arg-type]

    @property
    def _options(self) -> JobOptions:
        names = ("priority", "key", "max_attempts", "backoff", "timeout", "retention")
        given = {name: value for name in names if (value := getattr(self, name)) is not UNSET}
        if isinstance(self.backoff, BackoffOptions):
            given["backoff"] = self.backoff.backoff
        return JobOptions.of(given)  # type: ignore[arg-type]


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule and its next run. `when` describes it in words."""

    name: str
    queue: str
    task: str
    when: str
    paused: bool
    cron: str | None = None
    zone: str | None = None
    every: float | None = None
    catch_up: CatchUp
    next_at: datetime | None = None
    last_at: datetime | None = None
    fault: str | None = None
    """Why the record of the schedule cannot be read.

    It does not fire, and only its name and queue are known.
    """


class ScheduleList(msgspec.Struct, frozen=True):
    """Schedules by queue and name."""

    schedules: list[ScheduleView]


class UpcomingRunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs to list."""

    count: Annotated[int, Meta(ge=1, le=100)] = 5


class UpcomingRuns(msgspec.Struct, frozen=True):
    """The next runs of a schedule, as if it were not paused."""

    runs: list[datetime]


def schedule_view(info: ScheduleInfo) -> ScheduleView:
    """The view of a schedule."""
    spec = info.schedule.spec if info.fault is None else None
    return ScheduleView(
        name=info.name,
        queue=info.queue,
        task=info.task,
        when=info.when,
        paused=info.paused,
        cron=spec.expression if isinstance(spec, Cron) else None,
        zone=spec.zone if isinstance(spec, Cron) else None,
        every=spec.every_ms / 1000 if isinstance(spec, Every) else None,
        catch_up=info.schedule.catch_up,
        next_at=info.next_at,
        last_at=info.last_at,
        fault=info.fault,
    )


def _ms(value: datetime | None) -> int | None:
    return None if value is None else max(0, round(value.timestamp() * 1000))
