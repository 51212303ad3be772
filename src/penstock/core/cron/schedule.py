"""A schedule as a store keeps it."""

import msgspec

from penstock.core.clocks import STEP_MS
from penstock.core.cron.catch_up import DEFAULT_LIMIT, MAX_LIMIT, CatchUp, Due, due
from penstock.core.cron.instants import LAST_MS
from penstock.core.cron.spec import Every, Spec, check_spec
from penstock.core.errors import OptionError
from penstock.core.job import DEFAULT_PRIORITY, Options
from penstock.core.names import check_key, check_name
from penstock.core.unique import Unique


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Which job is made, and when. Times are Unix milliseconds; both ends belong to the schedule."""

    name: str
    spec: Spec
    task: str
    payload: bytes
    options: Options = Options()
    priority: int = DEFAULT_PRIORITY
    key: str | None = None
    catch_up: CatchUp = CatchUp.LAST
    catch_up_limit: int = DEFAULT_LIMIT
    paused: bool = False
    starts_at: int | None = None
    ends_at: int | None = None
    unique: Unique | None = None
    declared: bool = False
    """Whether the code of an app declares it: one that was put at run time is nobody's to prune."""

    def due(self, last_ms: int, now_ms: int) -> Due:
        """As `catch_up.due`, within the schedule's time; a paused one has nothing due, now or later."""
        if self.paused:
            return Due()
        last_ms = max(last_ms, (self.starts_at or 0) - 1)
        ends_ms = LAST_MS if self.ends_at is None else self.ends_at
        return due(self.spec, self.catch_up, last_ms, now_ms, self.catch_up_limit, ends_ms)

    def restarted(self, next_at: int, now_ms: int) -> int | None:
        """The instant to wait for instead of `next_at`, after the clock was set back to `now_ms`.

        An interval starts anew where it would be waited for longer than the interval and a minute; any other
        schedule takes the next instant of the new time. The same instant where nothing has to change.
        """
        if isinstance(self.spec, Every) and next_at <= now_ms + self.spec.every_ms + STEP_MS:
            return next_at
        coming = self.due(now_ms, now_ms).next
        return next_at if coming is None or coming > next_at else coming


def check_schedule(schedule: Schedule) -> Schedule:
    """The schedule with its spec checked, or an error naming the field. Options are the task's to check."""
    check_name("schedule", schedule.name)
    check_name("task", schedule.task)
    if schedule.key is not None:
        check_key("key", schedule.key)
    if not 1 <= schedule.catch_up_limit <= MAX_LIMIT:
        raise OptionError("catch_up_limit", schedule.catch_up_limit, f"a number from 1 to {MAX_LIMIT}")
    for field in ("starts_at", "ends_at"):
        at = getattr(schedule, field)
        if at is not None and at < 0:
            raise OptionError(field, at, "Unix milliseconds")
    if (
        schedule.starts_at is not None
        and schedule.ends_at is not None
        and schedule.ends_at < schedule.starts_at
    ):
        raise OptionError("ends_at", schedule.ends_at, f"an end not before the start at {schedule.starts_at}")
    return msgspec.structs.replace(schedule, spec=check_spec(schedule.spec))


def encode_schedule(schedule: Schedule) -> bytes:
    """The record in JSON, the payload in it as text."""
    fields = msgspec.to_builtins(schedule, builtin_types=(bytes,))
    return msgspec.json.encode(fields | {"payload": schedule.payload.decode()})


def decode_schedule(record: bytes | str) -> Schedule:
    """The schedule that `encode_schedule` wrote."""
    fields = msgspec.json.decode(record, type=dict[str, object])
    return msgspec.convert(fields | {"payload": str(fields["payload"]).encode()}, Schedule)
