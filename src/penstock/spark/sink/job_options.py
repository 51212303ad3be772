"""What the option columns of a row ask of its job, checked by the rules of a client's enqueue."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.core.errors import InvalidError, OptionError
from penstock.core.job import DEFAULT_PRIORITY, Options
from penstock.core.limits import Mode
from penstock.spark.sink.values import Flaw, Flaws
from penstock.tasks.options import JobOptions, milliseconds

_POLICY: Final = (
    "priority",
    "max_attempts",
    "max_retries",
    "backoff",
    "timeout",
    "retention",
    "key_retention",
    "result_retention",
)
"""There are few different ones in a batch: what they come to is kept."""
_KEPT: Final = 10_000
_LAST_MS: Final = 253_402_300_800_000
"""The end of the year 9999."""


class Policy(msgspec.Struct, frozen=True):
    """What a job is to be like. `says_priority` is for queues where keys take turns, which have none."""

    priority: int = DEFAULT_PRIORITY
    options: Options = Options()
    says_priority: bool = False

    def check_mode(self, mode: Mode, queue: str) -> None:
        """OptionError where a queue of this mode has no priorities."""
        if self.says_priority and mode.has_keys:
            wanted = f"none: in queue {queue!r}, which is {mode}, keys take turns"
            raise OptionError("_priority", self.priority, wanted)


PLAIN: Final = Policy()


class Policies:
    """Policies by what was asked for, each worked out once."""

    def __init__(self, options: Mapping[str, int]) -> None:
        self._places = {name: options[name] for name in _POLICY if name in options}
        self._kept: dict[tuple[Any, ...], Policy | Flaw] = {}

    def of(self, rows: int, values: Callable[[int], list[Any]], flaws: Flaws) -> list[Policy]:
        """The policy of each row; that of a bad row means nothing."""
        if not self._places:
            return [PLAIN] * rows
        lists = [values(at) for at in self._places.values()]
        return [self._policy(at, said, flaws) for at, said in enumerate(zip(*lists, strict=True))]

    def _policy(self, at: int, said: tuple[Any, ...], flaws: Flaws) -> Policy:
        found = self._kept.get(said)
        if found is None:
            if len(self._kept) == _KEPT:
                self._kept.clear()
            found = self._kept[said] = _worked_out(dict(zip(self._places, said, strict=True)))
        if isinstance(found, Flaw):
            flaws.setdefault(at, found)
            return PLAIN
        return found


def _worked_out(said: dict[str, Any]) -> Policy | Flaw:
    given = {name: _number(value) for name, value in said.items() if value is not None}
    try:
        made = JobOptions.of(given)  # type: ignore[arg-type]
    except InvalidError as error:
        return flaw_of(error)
    return Policy(made.tier, made.policy, made.priority is not None)


def delays_of(values: list[Any], flaws: Flaws) -> list[int]:
    """Delays in milliseconds, of seconds or intervals."""
    delays = []
    for at, value in enumerate(values):
        try:
            delays.append(0 if value is None else milliseconds("delay", _number(value)))
        except OptionError as error:
            flaws.setdefault(at, flaw_of(error))
            delays.append(0)
    return delays


def instants_of(column: pa.Array, flaws: Flaws) -> list[int | None]:
    """Times as Unix milliseconds, rounded up."""
    instants: list[int | None] = []
    for at, micros in enumerate(column.cast(pa.int64()).to_pylist()):
        instant = None if micros is None else max(0, -(-micros // 1000))
        if instant is not None and instant >= _LAST_MS:
            flaws.setdefault(at, Flaw("_run_at", f"_run_at: found {micros} µs, wanted a time up to 9999"))
            instant = None
        instants.append(instant)
    return instants


def flaw_of(error: InvalidError) -> Flaw:
    """The error as the flaw of an option column."""
    name = f"_{error.field.removeprefix('_')}"
    return Flaw(name, str(type(error)(name, error.found, error.wanted)))


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
