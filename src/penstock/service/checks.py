"""Checks that records of the store protocol keep the bounds that Penstock's own client keeps."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.core.cron.instants import LAST_MS
from penstock.core.cron.schedule import Schedule, check_schedule, decode_schedule
from penstock.core.cursors import read_cursor
from penstock.core.errors import InvalidError, OptionError, PayloadError
from penstock.core.headers import check_headers
from penstock.core.job import NewJob, Options
from penstock.core.limits import check_declaration
from penstock.core.names import check_key, check_name
from penstock.core.payload import PAYLOAD_LIMIT, PROGRESS_LIMIT, Description
from penstock.core.retry import MAX_DELAY_MS, Shape
from penstock.core.states import State
from penstock.service.json_bodies import check_unique_names, check_values
from penstock.service.paging import CURSOR
from penstock.service.scalars import check_scalars, is_within
from penstock.stores.values import Spawn, StoredSchedule
from penstock.stores.wire import MOST_ASKED, MOST_ITEMS
from penstock.tasks.options import LONGEST, MOST_ATTEMPTS

if TYPE_CHECKING:
    from penstock.service.request import Request

RECORD_BYTES: Final = 4 << 20
"""The record of a schedule: a payload of 1 MiB as text within JSON, and the schedule itself."""
_LONGEST_MS: Final = int(LONGEST.total_seconds() * 1000)


def check_arguments(call: str, given: Mapping[str, Any]) -> Generator[None]:
    """InvalidError where a number, text or list is out of the bounds that every store can keep; in steps."""
    for name, value in given.items():
        items = value if type(value) is list and len(value) <= MOST_ITEMS else (value,)
        for each in items:
            if not is_within(name, each):
                check_scalars("reader" if name == "name" and "reader" in call else name, name, value)
            yield
    if (more := _MORE.get(call)) is not None:
        more(given)
    asked = given.get("limit", getattr(given.get("query"), "limit", None))
    # How many events follow is found in the same time, however many it is.
    if asked is not None and call != "cursor_after" and asked > MOST_ASKED:
        raise InvalidError("limit" if "limit" in given else "query.limit", asked, f"up to {MOST_ASKED}")


def check_jobs(jobs: Sequence[NewJob], field: str = "jobs") -> Generator[None]:
    """Each job is one that a client could have made; in steps.

    A payload is any text to every store, and so it is here.
    """
    for place, new in enumerate(jobs):
        _check_job(f"{field}[{place}]", new)
        yield


def check_spawns(spawns: Sequence[Spawn]) -> Generator[None]:
    """Check jobs that go to other queues; in steps."""
    for place, each in enumerate(spawns):
        check_name(f"spawns[{place}].queue", each.queue)
        _check_job(f"spawns[{place}].job", each.job)
        yield


async def check_stored(request: "Request", stored: StoredSchedule) -> Schedule:
    """The schedule; InvalidError unless a client could have made its record, and its times are some."""
    if len(stored.body) > RECORD_BYTES:
        found = Description(f"{len(stored.body)} bytes")
        raise InvalidError("schedule.body", found, f"at most {RECORD_BYTES} bytes")
    await request.yielder.run(check_values("schedule.body", stored.body, request.service.limits.json_values))
    try:
        schedule = decode_schedule(stored.body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError):
        raise InvalidError("schedule.body", Description("something else"), "a schedule in JSON") from None
    check_unique_names(stored.body, "schedule.body")
    if schedule.name != stored.name:
        raise InvalidError("schedule.body.name", schedule.name, f"the schedule's own name, {stored.name!r}")
    check_schedule(schedule)
    if not 0 <= schedule.priority <= 9:
        raise OptionError("schedule.body.priority", schedule.priority, "0 to 9")
    _check_options("schedule.body.options", schedule.options)
    for field in ("next_at", "last_at"):
        at = getattr(stored, field)
        if at is not None and not 0 <= at <= LAST_MS:
            raise InvalidError(f"schedule.{field}", at, f"Unix milliseconds up to {LAST_MS}")
    return schedule


def _check_job(path: str, new: NewJob) -> None:
    check_name(f"{path}.id", new.id)
    check_name(f"{path}.task", new.task)
    for name, key in (("key", new.key), ("idempotency_key", new.idempotency_key)):
        # A store takes any text for a key, also none at all.
        if key:
            check_key(f"{path}.{name}", key)
    if new.headers is not None:
        check_headers(f"{path}.headers", new.headers)
    if not 0 <= new.priority <= 9:
        raise OptionError(f"{path}.priority", new.priority, "0 to 9")
    check_delay(f"{path}.delay_ms", new.delay_ms)
    _check_text(f"{path}.payload", new.payload)
    _check_at(f"{path}.run_at", new.run_at)
    _check_at(f"{path}.instant", new.instant)
    if new.unique is not None:
        check_delay(f"{path}.unique.window_ms", new.unique.window_ms)
    _check_options(f"{path}.options", new.options)


def _check_options(path: str, options: Options) -> None:
    if options == _DEFAULT:
        return
    if not 1 <= options.max_attempts <= MOST_ATTEMPTS:
        raise OptionError(f"{path}.max_attempts", options.max_attempts, f"1 to {MOST_ATTEMPTS}")
    for name in ("timeout_ms", "retention_ms", "key_retention_ms", "result_retention_ms"):
        if (value := getattr(options, name)) is not None:
            check_delay(f"{path}.{name}", value)
    backoff = options.backoff
    if backoff.shape is Shape.LISTED and not backoff.delays_ms:
        raise OptionError(
            f"{path}.backoff.delays_ms", Description("none"), "at least one delay in milliseconds"
        )
    for delay in (backoff.base_ms, backoff.cap_ms, *backoff.delays_ms):
        if not 0 <= delay <= MAX_DELAY_MS:
            raise OptionError(f"{path}.backoff", delay, f"milliseconds from 0 to {MAX_DELAY_MS}")


def check_delay(field: str, ms: int) -> None:
    """OptionError for a time that a queue cannot wait."""
    if not 0 <= ms <= _LONGEST_MS:
        raise OptionError(field, ms, f"milliseconds from 0 to {_LONGEST_MS}")


def _check_at(field: str, at: int | None) -> None:
    if at is not None and not _FIRST_MS <= at <= LAST_MS:
        raise InvalidError(field, at, f"Unix milliseconds from {_FIRST_MS} to {LAST_MS}")


def _check_text(field: str, value: bytes | None, most: int = PAYLOAD_LIMIT) -> None:
    if value is not None and len(value) > most:
        raise PayloadError(field, Description(f"{len(value)} bytes"), f"at most {most} bytes")
    try:
        is_text = "\0" not in (value or b"").decode()
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        raise InvalidError(field, Description("other bytes"), "text in UTF-8, without NUL")


def _check_settlements(given: Mapping[str, Any]) -> None:
    for place, each in enumerate(given["settlements"]):
        _check_text(f"settlements[{place}].result", getattr(each, "result", None))
        check_delay(f"settlements[{place}].delay_ms", getattr(each, "delay_ms", 0))


def _check_expiries(given: Mapping[str, Any]) -> None:
    for place, each in enumerate(given["expiries"]):
        if each.target not in _AFTER_EXPIRY:
            raise InvalidError(f"expiries[{place}].target", each.target, "delayed, pending or dead")
        check_delay(f"expiries[{place}].delay_ms", each.delay_ms)


def _check_reports(given: Mapping[str, Any]) -> None:
    for place, each in enumerate(given["reports"]):
        _check_text(f"reports[{place}].value", each.value, PROGRESS_LIMIT)


def _check_endings(given: Mapping[str, Any]) -> None:
    for place, each in enumerate(given["endings"]):
        if each.state is not None and not each.state.is_ended:
            raise InvalidError(f"endings[{place}].state", each.state, "how the child ended")
        _check_text(f"endings[{place}].result", each.result)


def _check_query(given: Mapping[str, Any]) -> None:
    after = given["query"].after
    if after is not None and not CURSOR.fullmatch(after):
        raise InvalidError("query.after", after[:100], "what `next` says of the page before")


def _check_pause(given: Mapping[str, Any]) -> None:
    if (pause := given["pause"]) is not None:
        for field in ("at", "until"):
            _check_at(f"pause.{field}", getattr(pause, field))
    if (for_ms := given.get("for_ms")) is not None:
        check_delay("for_ms", for_ms)


def _check_firing(given: Mapping[str, Any]) -> None:
    for field in ("at", "next_at", "last_at"):
        _check_at(f"firing.{field}", getattr(given["firing"], field))


def _check_cursors(given: Mapping[str, Any]) -> None:
    for field in ("after", "through", "cursor"):
        if field in given:
            read_cursor(field, given[field])


def _check_time(given: Mapping[str, Any]) -> None:
    _check_at("at", given["at"])


def _check_declaration(given: Mapping[str, Any]) -> None:
    check_declaration(given["declaration"])


def _check_after(given: Mapping[str, Any]) -> None:
    if given.get("after"):
        check_name("after", given["after"])


def _check_entry(given: Mapping[str, Any]) -> None:
    if given.get("after"):
        check_scalars("after", "entries", given["after"])


def _check_place(given: Mapping[str, Any]) -> None:
    if (after := given.get("after", 0)) < 0:
        raise InvalidError("after", after, "0 or more")


def _check_turn(given: Mapping[str, Any]) -> None:
    if abs(given["by_ms"]) > LAST_MS:
        raise InvalidError("by_ms", given["by_ms"], f"milliseconds up to {LAST_MS}, either way")


_DEFAULT: Final = Options()
_AFTER_EXPIRY: Final = frozenset({State.DELAYED, State.PENDING, State.DEAD})
_FIRST_MS: Final = -62_135_596_800_000
"""The first moment of the year 1: with the last one, what can be written as a date."""
_MORE: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    "settle": _check_settlements,
    "expire": _check_expiries,
    "progress": _check_reports,
    "child_ended": _check_endings,
    "find": _check_query,
    "pause_queue": _check_pause,
    "fire": _check_firing,
    "read_events": _check_cursors,
    "event_columns": _check_cursors,
    "cursor_after": _check_cursors,
    "register_reader": _check_cursors,
    "cursor_at": _check_time,
    "declare": _check_declaration,
    "list_quarantined": _check_entry,
    "damaged_events": _check_cursors,
    "list_entries": _check_after,
    "due_queues": _check_after,
    "children": _check_place,
    "list_relay_entries": _check_place,
    "advance_clock": _check_turn,
}
