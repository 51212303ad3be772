"""From a call and a time to a schedule."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypedDict, Unpack

from penstock.client.jobs import new_job
from penstock.core.cron.catch_up import DEFAULT_LIMIT, CatchUp
from penstock.core.cron.schedule import Schedule, check_schedule
from penstock.core.cron.spec import Cron, Every, Spec
from penstock.core.errors import OptionError
from penstock.core.job import NewJob
from penstock.core.unique import UniqueRule
from penstock.tasks.call import Call

When = str | timedelta | Spec
"""A cron expression, an interval, or either as `Cron` and `Every`."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleOptions(TypedDict, total=False):
    """What is said of a schedule beside its time and its job."""

    catch_up: CatchUp | str
    """What becomes of instants that passed while nobody looked: none, last (as if not given) or all."""
    catch_up_limit: int
    """How many of them with `all`, the newest; 100 if not given."""
    starts_at: datetime
    ends_at: datetime
    """The last time it may fire."""


def spec_of(when: When, zone: str = "UTC") -> Spec:
    """A spec out of what a user writes."""
    if isinstance(when, str):
        return Cron.of(when, zone)
    if isinstance(when, timedelta):
        return Every.of(when.total_seconds())
    return when


def make_schedule(name: str, spec: Spec, call: Call[Any], **options: Unpack[ScheduleOptions]) -> Schedule:
    """The schedule of a call, checked; OptionError for options that a schedule's jobs cannot have."""
    new = new_job(call, "schedule")
    _check_job(call, new)
    catch_up, starts_at, ends_at = check_options(options)
    return check_schedule(
        Schedule(
            name=name,
            spec=spec,
            task=new.task,
            payload=new.payload,
            options=new.options,
            priority=new.priority,
            key=new.key,
            unique=new.unique,
            catch_up=catch_up,
            catch_up_limit=options.get("catch_up_limit", DEFAULT_LIMIT),
            starts_at=starts_at,
            ends_at=ends_at,
        )
    )


def _check_job(call: Call[Any], new: NewJob) -> None:
    if new.unique is not None and new.unique.rule is UniqueRule.DEBOUNCE:
        raise OptionError("debounce", new.unique.window_ms / 1000, "none: a schedule's jobs wait for nothing")
    if new.delay_ms or new.run_at is not None:
        field = "delay" if new.delay_ms else "run_at"
        raise OptionError(field, new.delay_ms / 1000 or new.run_at, "none: the schedule says when")
    for field, found in (("id", call.options.id), ("idempotency_key", new.idempotency_key)):
        if found is not None:
            raise OptionError(field, found, "none: each instant has a job of its own")


def check_options(options: ScheduleOptions) -> tuple[CatchUp, int | None, int | None]:
    """Catch-up, start and end; OptionError names what cannot be."""
    if unknown := options.keys() - ScheduleOptions.__annotations__.keys():
        wanted = f"one of {', '.join(ScheduleOptions.__annotations__)}"
        raise OptionError(min(unknown), options.get(min(unknown)), wanted)
    policy = options.get("catch_up", CatchUp.LAST)
    if policy not in list(CatchUp):
        raise OptionError("catch_up", policy, f"one of {', '.join(CatchUp)}")
    starts_at = _instant("starts_at", options.get("starts_at"), math.ceil)
    return CatchUp(policy), starts_at, _instant("ends_at", options.get("ends_at"), math.floor)


def _instant(field: str, at: object, rounded: Callable[[float], int]) -> int | None:
    if at is None:
        return None
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise OptionError(field, at, "a datetime with a time zone")
    return rounded((at - _EPOCH) / timedelta(milliseconds=1))
