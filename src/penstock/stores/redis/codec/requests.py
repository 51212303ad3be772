"""The arguments of scripts."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.core.events import first_line
from penstock.core.flows import ChildPolicy
from penstock.core.job import NewJob, Options
from penstock.core.moves import Bury, Complete, Expire, Fail, Fault, Release, Retry, Settlement, Snooze

TEMPLATE_FIELDS: Final = ("task", "priority", "options", "max_attempts", "retention_ms", "key_held_ms")
"""What jobs that come together have in common."""
ITEM_FIELDS: Final = ("id", "nonce", "template", "idempotency_key", "digest", "rest")
"""The values of one new job: `template` is a number, `rest` what few jobs have, or false."""
pack: Final = msgspec.msgpack.Encoder().encode
"""Arguments travel packed, except for payloads and the like: the server's unpacker takes no bytes."""


def enqueue_arguments(jobs: Sequence[NewJob]) -> tuple[list[Any], list[Any]]:
    """The templates of new jobs, and the values of each job in one list, without payloads."""
    templates: list[tuple[Any, ...]] = []
    numbers: dict[tuple[str, int, int], int] = {}
    items: list[Any] = []
    for new in jobs:
        kind = new.task, new.priority, id(new.options)
        number = numbers.get(kind)
        if number is None:
            known, written = _written_options(new.options)
            templates.append((new.task, new.priority, written, *known))
            number = numbers[kind] = len(templates)
        key = new.idempotency_key
        items += (
            (new.id, new.nonce, number, False, False, _rarely_set(new))
            if key is None
            else (new.id, new.nonce, number, key, new.digest, _rarely_set(new))
        )
    return templates, items


def short_arguments(jobs: Sequence[NewJob]) -> tuple[list[Any], ...]:
    """The same; where the jobs share one template and differ in nothing else, that, their ids and nonces."""
    templates, items = enqueue_arguments(jobs)
    rarely_set = [*items[3::_ITEM_WIDTH], *items[5::_ITEM_WIDTH]]
    if len(templates) == 1 and rarely_set.count(False) == len(rarely_set):
        return templates, items[0::_ITEM_WIDTH], items[1::_ITEM_WIDTH]
    return templates, items


def _rarely_set(new: NewJob) -> tuple[Any, ...] | bool:
    """What few jobs that come in bulk have: most wait at once, in no order of keys."""
    extra = _extra_arguments(new)
    if extra is None and new.key is None and not new.delay_ms and new.run_at is None:
        return False
    return new.delay_ms, new.run_at, new.key, extra


def _extra_arguments(new: NewJob) -> dict[str, Any] | None:
    extra: dict[str, Any] = {}
    if new.unique is not None:
        extra["unique"] = (new.unique.key, new.unique.rule, new.unique.window_ms)
    if new.parents:
        extra["parents"] = new.parents
    if new.awaits:
        # Named twice it is one child.
        extra["awaits"] = tuple(dict.fromkeys(new.awaits))
    if new.child_policy is not ChildPolicy.FAIL:
        extra["policy"] = new.child_policy
    if new.schedule is not None:
        extra |= {"schedule": new.schedule, "instant": new.instant}
    if new.headers:
        extra["headers"] = new.headers
    return extra or None


_ITEM_WIDTH: Final = len(ITEM_FIELDS)
_FIRST_RESULT: Final = 4
"""The number of the argument of calls/settle.lua from which on results stand."""


def settle_arguments(settlements: Sequence[Settlement]) -> tuple[bytes, list[bytes]]:
    """Settlements in the order of calls/settle.lua, and the results, which go apart."""
    items: list[tuple[Any, ...]] = []
    results: list[bytes] = []
    for each in settlements:
        match each:
            case Complete(id=job, token=token, result=result):
                at = None if result is None else _FIRST_RESULT + len(results)
                items.append((each.move, job, token, at))
                results += [] if result is None else [result]
            case Fail(id=job, token=token, fault=fault):
                items.append((each.move, job, token, *_fault(fault)))
            case Bury(id=job, token=token, fault=fault, uses_attempt=uses_attempt):
                items.append((each.move, job, token, uses_attempt, *_fault(fault)))
            case Retry(id=job, token=token, delay_ms=delay_ms, fault=fault):
                items.append((each.move, job, token, delay_ms, *_fault(fault)))
            case Snooze(id=job, token=token, delay_ms=delay_ms, reason=reason):
                items.append((each.move, job, token, delay_ms, reason))
            case Release(id=job, token=token, error=error):
                items.append((each.move, job, token, *_error(error)))
    return pack(items), results


def expire_arguments(expiry: Expire) -> tuple[Any, ...]:
    """An expiry in the order of expire.lua."""
    return expiry.id, expiry.token, expiry.target, expiry.delay_ms, *_fault(expiry.fault)


def _fault(fault: Fault) -> tuple[str, str | None, str | None, str | None]:
    """Reason, first line and rest of the error, fingerprint."""
    return fault.reason, *_error(fault.error), fault.fingerprint


def _error(error: str | None) -> tuple[str | None, str | None]:
    """The first line, which events carry, and the rest."""
    line = first_line(error)
    return line, None if error is None or line is None else error[len(line) :] or None


@lru_cache(maxsize=256)
def _written_options(options: Options) -> tuple[tuple[int, int, int], str]:
    """What scripts need to know of them, and all of them."""
    known = options.max_attempts, options.kept_ms, options.key_held_ms
    return known, msgspec.json.encode(options).decode()
