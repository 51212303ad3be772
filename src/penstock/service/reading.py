"""Reads a request: headers, names in the path, query and body."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from penstock.core.errors import InvalidError
from penstock.core.names import check_name, check_worker
from penstock.service.errors import MalformedError, UnsupportedMediaError
from penstock.service.json_bodies import check_unique_names, check_values
from penstock.service.limits import Limits, Receive, Scope, read_body
from penstock.service.problems import BadRequestError, Fault, decoded, validation_fault
from penstock.service.responses import JSON
from penstock.service.yielding import Yielder
from penstock.stores.wire import MEDIA_TYPE

NAMES: Final = frozenset({"id", "name", "queue", "worker"})
"""Values in a path that are names by the rules of the queue."""
SINGLE_HEADERS: Final = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"last-event-id",
        b"penstock-tenant",
    }
)
"""Headers that decide the principal, the tenant, and how the body is read."""


async def read_as(
    limits: Limits,
    headers: Mapping[str, str],
    receive: Receive,
    kind: Any,
    yielder: Yielder,
    *,
    grow: Callable[[int], None],
) -> Any:
    """The body as one of the wire's models, or as the bytes of a call to the store. See `read_body`."""
    wanted = MEDIA_TYPE if kind is bytes else JSON
    media = headers.get("content-type", wanted).partition(";")[0].strip().lower()
    if media != wanted:
        raise UnsupportedMediaError(f"content-type: found {media!r}, wanted {wanted}")
    body = await read_body(limits, headers, receive, grow)
    if kind is bytes:
        return body
    await yielder.run(check_values("the body", body, limits.json_values))
    found = decoded(body, kind)
    await yielder.checkpoint()
    check_unique_names(body)
    await yielder.checkpoint()
    return found


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers by their names in small letters; values of one that is repeated are joined by commas."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def check_headers(scope: Scope) -> None:
    """MalformedError when a header that the service acts on is repeated: a proxy could act on another one."""
    names = [name.lower() for name, _ in scope["headers"]]
    _check_hops(scope, names)
    if len(set(names)) == len(names):
        return
    for name, count in Counter(names).items():
        if count > 1 and name in SINGLE_HEADERS:
            raise MalformedError(f"header {name.decode()}: found {count} of them, wanted one")


def _check_hops(scope: Scope, names: Sequence[bytes]) -> None:
    """MalformedError for what a proxy may read otherwise, or has to remove on the way."""
    if b"transfer-encoding" in names and scope.get("http_version") == "1.0":
        raise MalformedError(
            "header transfer-encoding: found in a request of HTTP/1.0, wanted content-length"
        )
    for name, value in scope["headers"]:
        if name.lower() != b"connection":
            continue
        for each in value.lower().split(b","):
            if each.strip() in SINGLE_HEADERS:
                found = each.strip().decode()
                raise MalformedError(
                    f"header connection: found {found!r}, wanted no header with a meaning here"
                )


def check_names(values: Mapping[str, str]) -> None:
    """BadRequestError for a value in a path that should be a name and cannot be one."""
    for name in NAMES & values.keys():
        try:
            (check_worker if name == "worker" else check_name)(name, values[name])
        except InvalidError as error:
            fault = Fault(wanted=error.wanted, found=values[name][:100], parameter=name)
            raise BadRequestError(fault) from None


def query_of(scope: Scope, kind: Any) -> Any:
    """The query as one of the wire's models; BadRequestError names the parameter."""
    try:
        pairs = parse_qsl(
            scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(scope["query_string"]),
            errors="strict",
            max_num_fields=50,
        )
    except ValueError:
        raise MalformedError("the query cannot be read") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        twice = next(name for name in given if [each for each, _ in pairs].count(name) > 1)
        raise BadRequestError(Fault(wanted="it once", found="it twice", parameter=twice))
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequestError(validation_fault(str(error), parameter=True)) from None
