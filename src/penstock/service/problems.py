"""Every error as problem+json (RFC 9457): type, title, status, detail, and for bad input where and what."""

import re
from datetime import datetime
from enum import Enum
from typing import Any, Final

import msgspec

from penstock.core import errors as core
from penstock.core.errors import LONGEST_FIELD, LONGEST_TEXT, InvalidError, PenstockError, shortened
from penstock.service.errors import MalformedError, QuotaError, ServiceError
from penstock.service.webhooks.errors import WebhookNotFoundError

MEDIA_TYPE: Final = "application/problem+json"
SHOWN: Final = 120
"""Characters of what was found that are told back."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place in a request that is wrong. `pointer` leads into the body; else a `parameter` is named.

    Whatever of it comes from the request is shortened.
    """

    wanted: str
    found: str | None = None
    pointer: str | None = None
    parameter: str | None = None

    def __post_init__(self) -> None:
        """Shorten what can be as long as a body."""
        _shorten(self, "wanted", LONGEST_TEXT)
        for name in ("found", "pointer", "parameter"):
            _shorten(self, name, LONGEST_FIELD)


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong. `type` stays the same for the same kind; `detail` is for people.

    `error` is the name of the queue's own error, by which a client in Python raises it again; `trimmed` says
    which events are gone, and `remaining` what keeps a queue from being deleted.
    """

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[Fault, ...] = ()
    request_id: str | None = None
    retry_after: int | None = None
    error: str | None = None
    trimmed: tuple[int, int] | None = None
    remaining: dict[str, int] | None = None

    def __post_init__(self) -> None:
        """Shorten what can be as long as a body."""
        _shorten(self, "detail", LONGEST_TEXT)


class BadRequestError(ServiceError):
    """Bad input, place by place."""

    slug = "invalid"
    title = "Some of the input cannot be used"

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        first = faults[0]
        where = first.parameter or first.pointer or "the body"
        found = "" if first.found is None else f"found {first.found}, "
        super().__init__(f"{where}: {found}wanted {first.wanted}")


_KINDS: Final[dict[type[PenstockError], tuple[int, str, str]]] = {
    core.InvalidError: (400, "invalid", "Some of the input cannot be used"),
    core.FlowError: (400, "flow", "The jobs cannot wait for each other like this"),
    core.UnknownQueueError: (404, "not-found", "Not found"),
    core.UnknownTaskError: (404, "not-found", "Not found"),
    core.JobNotFoundError: (404, "not-found", "Not found"),
    WebhookNotFoundError: (404, "not-found", "Not found"),
    core.DuplicateJobError: (409, "duplicate", "The id is taken by another job"),
    core.StaleLeaseError: (409, "stale-lease", "The lease is no longer held"),
    core.WrongStateError: (409, "wrong-state", "The job's state does not allow this"),
    core.JobEndedError: (409, "ended", "The job ended without a result"),
    core.QueueNotEmptyError: (409, "not-empty", "The queue is not empty"),
    core.DeclarationError: (409, "declaration", "The queue is declared otherwise"),
    core.CursorLostError: (410, "cursor-lost", "Events after the cursor are gone"),
    core.IdempotencyConflictError: (422, "idempotency", "The idempotency key stands for another payload"),
    core.QueueFullError: (429, "queue-full", "The queue is full"),
    core.ResultTimeoutError: (504, "timeout", "It did not happen in time"),
    core.StoreFullError: (507, "store-full", "The store has no room left"),
    core.StoreUnavailableError: (503, "store-unavailable", "The store cannot be reached"),
    core.StoreError: (500, "store", "The store failed"),
}
_RETRY: Final = {"queue-full": 1, "store-unavailable": 1}
_INTERNAL: Final = (500, "internal", "Something went wrong in the service")


def problem_of(error: Exception, request_id: str | None = None) -> tuple[Problem, dict[str, str]]:
    """The problem of an error, and headers of its answer. What nobody foresaw tells nothing of the inside."""
    if isinstance(error, ServiceError):
        retry = error.headers.get("retry-after")
        problem = Problem(
            type=f"urn:penstock:{error.slug}",
            title=error.title,
            status=error.status,
            detail=str(error),
            errors=_faults(error),
            request_id=request_id,
            retry_after=None if retry is None else int(retry),
        )
        return problem, error.headers
    status, slug, title = next((_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS), _INTERNAL)
    # A store's own words can name files and hosts: they are for the log.
    detail = title
    if status < 500 and isinstance(error, PenstockError):
        detail = _described(error) if isinstance(error, InvalidError) else str(error)
    after = _RETRY.get(slug)
    problem = Problem(
        type=f"urn:penstock:{slug}",
        title=title,
        status=status,
        detail=detail,
        errors=(fault_of(error),) if isinstance(error, InvalidError) else (),
        request_id=request_id,
        retry_after=after,
        error=next((each.__name__ for each in type(error).__mro__ if each.__module__ == core.__name__), None),
        trimmed=error.trimmed if isinstance(error, core.CursorLostError) else None,
        remaining=error.found if isinstance(error, core.QueueNotEmptyError) else None,
    )
    return problem, {} if after is None else {"retry-after": str(after)}


def _faults(error: ServiceError) -> tuple[Fault, ...]:
    if isinstance(error, BadRequestError):
        return error.faults
    if isinstance(error, QuotaError) and error.wanted is not None:
        return (Fault(wanted=error.wanted, found=error.found, parameter=error.quota),)
    return ()


def fault_of(error: InvalidError, within: str = "") -> Fault:
    """Where in the body an invalid value stands; `within` is the pointer of what holds it."""
    return Fault(wanted=error.wanted, found=_short(error.found), pointer=within + pointer_of(error.field))


def pointer_of(field: str) -> str:
    """A JSON pointer from a path.

    >>> pointer_of("body.items[3]['a/b']")
    '/body/items/3/a~1b'
    """
    parts = [quoted or index or plain for quoted, index, plain in _STEP.findall(field)]
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def decoded(body: bytes, kind: Any) -> Any:
    """The body as one of the wire's models, strictly; BadRequestError names the place."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(validation_fault(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is not JSON: {error}") from None


def validation_fault(said: str, *, parameter: bool = False) -> Fault:
    """What msgspec says of a value, taken apart. The names and values in it can be of any length."""
    if len(said) > 4 * SHOWN:
        said = f"{said[: 2 * SHOWN]}…{said[-2 * SHOWN :]}"
    what, _, where = said.partition(" - at `")
    path = where.rstrip("`").removeprefix("$").removeprefix(".")
    place: dict[str, Any] = {"parameter": path} if parameter else {"pointer": pointer_of(path)}
    if match := _MISSING.search(what):
        place = {"parameter": match[1]} if parameter else {"pointer": pointer_of(f"{path}.{match[1]}")}
        return Fault(wanted="a value: it is required", found="nothing", **place)
    if match := _UNKNOWN.search(what):
        place = {"parameter": match[1]} if parameter else {"pointer": pointer_of(f"{path}.{match[1]}")}
        return Fault(wanted="no field of this name", found=_short(match[1]), **place)
    if match := _EXPECTED.fullmatch(what):
        return Fault(wanted=match[1].replace("`", ""), found=_short(match[2].replace("`", "")), **place)
    if match := _NONE_OF.fullmatch(what):
        return Fault(
            wanted="one of the values that the OpenAPI document lists", found=_short(match[1]), **place
        )
    wanted = re.sub("^Invalid ", "a valid ", what.removeprefix("Expected "))
    return Fault(wanted=wanted.replace("`", ""), **place)


def _described(error: InvalidError) -> str:
    """What the error says, without the words of a program in Python."""
    if isinstance(error.found, str) and not isinstance(error.found, Enum):
        return str(error)
    return f"{error.field}: found {_short(error.found)}, wanted {error.wanted}"


def _plain(found: object) -> str:
    """A value as JSON has it: times, states and bytes as text."""
    match found:
        case Enum():
            return str(found.value)
        case datetime():
            return found.isoformat()
        case bytes():
            return found.decode(errors="replace")
        case list() | tuple() | set() | frozenset():
            return f"[{', '.join(map(_plain, found))}]"
    return repr(found)


def _shorten(told: msgspec.Struct, name: str, most: int) -> None:
    text = getattr(told, name)
    if text is not None and len(text) > most:
        msgspec.structs.force_setattr(told, name, shortened(text, most))


def _short(found: object) -> str:
    text = str(found) if isinstance(found, str) else _plain(found)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


_STEP: Final = re.compile(r"\['([^']*)'\]|\[(\d+|\.\.\.)\]|([^.\[\]]+)")
_EXPECTED: Final = re.compile(r"Expected (.+), got (.+)", re.DOTALL)
_NONE_OF: Final = re.compile(r"Invalid (?:enum )?value '?(.*?)'?", re.DOTALL)
_MISSING: Final = re.compile(r"missing required field `([^`]+)`")
_UNKNOWN: Final = re.compile(r"contains unknown field `([^`]+)`")
