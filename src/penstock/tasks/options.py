"""The options of a job: defaults of the queue, then of the task, then of the call."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypedDict

import msgspec

from penstock.core.errors import OptionError
from penstock.core.headers import check_headers
from penstock.core.job import DEFAULT_PRIORITY, Options
from penstock.core.names import check_key, check_name
from penstock.core.retry import PRESETS, Backoff
from penstock.core.unique import UniqueRule

PriorityName = Literal["critical", "high", "normal", "low"]
PRIORITIES: Final[dict[str, int]] = {"critical": 9, "high": 7, "normal": 5, "low": 2}
LONGEST: Final = timedelta(days=3653)
"""The longest delay, timeout and retention: ten years."""
MOST_ATTEMPTS: Final = 1_000_000

Seconds = float | timedelta
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_POLICY: Final = (
    "max_attempts",
    "backoff",
    "timeout_ms",
    "retention_ms",
    "key_retention_ms",
    "result_retention_ms",
)


class Defaults(TypedDict, total=False):
    """What a queue or a task can set for all its jobs."""

    priority: int | PriorityName
    """0 to 9, higher first, or critical (9), high (7), normal (5), low (2)."""
    delay: Seconds
    max_attempts: int
    """Executions in all; `max_retries` is the same less one."""
    max_retries: int
    backoff: Backoff | str | Sequence[float]
    """A Backoff, the name of a preset, or seconds to wait in turn."""
    timeout: Seconds
    retention: Seconds
    """How long the job is kept after it ended."""
    key_retention: Seconds
    """How long the idempotency key outlives the job's record; as `retention` if not given."""
    result_retention: Seconds
    """How long the result is wanted after the job ended, where that is longer than `retention`."""
    strict: bool
    """Refuse a call whose idempotency key is held by a job with another payload."""
    key: str
    """The concurrency key."""
    unique: Literal["waiting", "live"]
    """One job of a kind: while it has not started, or until it ended."""
    throttle: Seconds
    """One job of a kind in so much time, whatever became of it."""
    debounce: Seconds
    """Run the newest of a kind once so much time went by without another; needs `unique_key`."""
    unique_key: str
    """Which kind, among the jobs of the task; the payload decides if not given."""


class CallOptions(Defaults, total=False):
    """What one call can set."""

    run_at: datetime
    idempotency_key: str
    id: str
    headers: Mapping[str, str]
    """Small texts by name that travel with the job and that no rule reads, such as the context of a trace."""


class Kind(msgspec.Struct, frozen=True):
    """How long a job keeps others of its kind away."""

    rule: UniqueRule
    window_ms: int = 0

    @property
    def is_debounced(self) -> bool:
        """True when the newest replaces the one that waits: the window is also its delay."""
        return self.rule is UniqueRule.DEBOUNCE


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one layer, checked and in the units of the store. None is: not said here."""

    priority: int | None = None
    delay_ms: int | None = None
    run_at: int | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    retention_ms: int | None = None
    key_retention_ms: int | None = None
    result_retention_ms: int | None = None
    idempotency_key: str | None = None
    strict: bool | None = None
    key: str | None = None
    id: str | None = None
    kind: Kind | None = None
    unique_key: str | None = None
    headers: dict[str, str] | None = None

    @classmethod
    def of(
        cls, given: CallOptions | Defaults, known: Iterable[str] = CallOptions.__annotations__
    ) -> "JobOptions":
        """Checked; OptionError or InvalidNameError names the option that cannot be.

        `known` are the options that can be given here, also those which are not about jobs.
        """
        known = list(known)
        fields: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known and name in CallOptions.__annotations__:
                raise OptionError(name, value, f"none here: it is of one call, as in task.options({name}=…)")
            if name not in known:
                raise OptionError(name, value, _ELSEWHERE.get(name, f"one of {', '.join(known)}"))
            if value is not None:
                field, read = _READERS[name]
                if field in fields or (field in _WHEN and _WHEN & fields.keys()):
                    raise OptionError(name, value, f"either {_RIVALS[name]}, not both")
                fields[field] = read(name, value)
        if _is_debounced(fields) and _WHEN & fields.keys():
            raise OptionError("debounce", given.get("debounce"), "no delay or run_at beside it")
        return cls(**fields)

    def over(self, lower: "JobOptions") -> "JobOptions":
        """These options, and where they say nothing those of the layer below."""
        if self == _NOTHING:
            return lower
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if said.keys() & _WHEN or _is_debounced(said):
            lower = msgspec.structs.replace(lower, delay_ms=None, run_at=None)
        return msgspec.structs.replace(lower, **said)

    def checked(self) -> "JobOptions":
        """The options themselves, once all layers are in; OptionError where they exclude each other."""
        if self.kind is None:
            if self.unique_key is not None:
                raise OptionError("unique_key", self.unique_key, "unique, throttle or debounce beside it")
            return self
        if self.idempotency_key is not None:
            wanted = "either an idempotency key or one of unique, throttle and debounce"
            raise OptionError("idempotency_key", self.idempotency_key, wanted)
        if self.kind.is_debounced:
            if self.unique_key is None:
                # The payload is what changes between the calls, so it cannot say which belong together.
                raise OptionError("unique_key", None, "a key beside debounce: it says what replaces what")
            if self.delay_ms is not None or self.run_at is not None:
                raise OptionError("debounce", self.kind.window_ms / 1000, "no delay or run_at beside it")
        return self

    @property
    def wait_ms(self) -> int:
        """The delay before the job may run."""
        if self.kind is not None and self.kind.is_debounced:
            return self.kind.window_ms
        return self.delay_ms or 0

    @property
    def policy(self) -> Options:
        """What travels with the job."""
        said = {name: value for name in _POLICY if (value := getattr(self, name)) is not None}
        return Options(**said) if said else _POLICY_DEFAULT

    @property
    def tier(self) -> int:
        """The priority, or the default one."""
        return DEFAULT_PRIORITY if self.priority is None else self.priority


def _priority(field: str, value: object) -> int:
    wanted = f"0 to 9, or one of {', '.join(PRIORITIES)}"
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 9:
        raise OptionError(field, value, wanted)
    return value


def milliseconds(field: str, value: object) -> int:
    """A time that a user gave, in whole milliseconds; OptionError when it is none."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    longest = LONGEST.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= longest:
        raise OptionError(field, value, f"seconds or a timedelta, from 0 to {longest:.0f} seconds")
    return math.ceil(seconds * 1000)


def _timeout(field: str, value: object) -> int:
    found = milliseconds(field, value)
    if found == 0:
        raise OptionError(field, value, "more than 0 seconds")
    return found


def _instant(field: str, value: object) -> int:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise OptionError(field, value, "a datetime with a time zone")
    return max(0, math.ceil((value - _EPOCH) / timedelta(milliseconds=1)))


def _attempts(field: str, value: object, least: int = 1) -> int:
    wanted = f"a whole number from {least} to {MOST_ATTEMPTS}"
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_ATTEMPTS:
        raise OptionError(field, value, wanted)
    return value


def _retries(field: str, value: object) -> int:
    return _attempts(field, value, least=0) + 1


def _backoff(field: str, value: object) -> Backoff:
    if isinstance(value, Backoff):
        return value
    if isinstance(value, str) and value in PRESETS:
        return PRESETS[value]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Backoff.listed(*value)
    raise OptionError(field, value, f"a Backoff, a list of seconds, or one of {', '.join(PRESETS)}")


def _strict(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise OptionError(field, value, "True or False")
    return value


def _unique(field: str, value: object) -> Kind:
    if not isinstance(value, str) or value not in {"waiting", "live"}:
        raise OptionError(field, value, "waiting or live")
    return Kind(UniqueRule(value))


def _throttle(field: str, value: object) -> Kind:
    return Kind(UniqueRule.THROTTLE, _timeout(field, value))


def _debounce(field: str, value: object) -> Kind:
    return Kind(UniqueRule.DEBOUNCE, _timeout(field, value))


def _is_debounced(fields: dict[str, Any]) -> bool:
    kind = fields.get("kind")
    return isinstance(kind, Kind) and kind.is_debounced


_READERS: Final[dict[str, tuple[str, Any]]] = {
    "priority": ("priority", _priority),
    "delay": ("delay_ms", milliseconds),
    "run_at": ("run_at", _instant),
    "max_attempts": ("max_attempts", _attempts),
    "max_retries": ("max_attempts", _retries),
    "backoff": ("backoff", _backoff),
    "timeout": ("timeout_ms", _timeout),
    "retention": ("retention_ms", milliseconds),
    "key_retention": ("key_retention_ms", milliseconds),
    "idempotency_key": ("idempotency_key", check_key),
    "result_retention": ("result_retention_ms", milliseconds),
    "strict": ("strict", _strict),
    "key": ("key", check_key),
    "id": ("id", check_name),
    "unique": ("kind", _unique),
    "throttle": ("kind", _throttle),
    "debounce": ("kind", _debounce),
    "unique_key": ("unique_key", check_key),
    "headers": ("headers", check_headers),
}
_ELSEWHERE: Final = {
    "bind": "none: a handler that wants to know its job takes ctx: JobContext",
    "countdown": "delay=, in seconds",
    "eta": "run_at=",
    "time_limit": "timeout=",
    "soft_time_limit": "soft_timeout=, with executor='process'",
    "job_timeout": "timeout=",
    "rate_limit": "rate= of a queue, as in app.queue(…, rate=Rate.per_second(5))",
    "autoretry_for": "none: every error is tried again, but Fail",
    "max_tries": "max_attempts=",
}
"""Options as other job queues call them, and what is wanted here."""
_WHEN: Final = frozenset({"delay_ms", "run_at"})
_RIVALS: Final = {
    "delay": "delay or run_at",
    "run_at": "delay or run_at",
    "max_attempts": "max_attempts or max_retries",
    "max_retries": "max_attempts or max_retries",
    "unique": "unique, throttle or debounce",
    "throttle": "unique, throttle or debounce",
    "debounce": "unique, throttle or debounce",
}
_NOTHING: Final = JobOptions()
_POLICY_DEFAULT: Final = Options()
