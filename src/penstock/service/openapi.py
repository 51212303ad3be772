"""The OpenAPI document, made from the table of routes and the models of the wire."""

import inspect
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from penstock.core.names import WORKER_FORM
from penstock.service.examples import EXAMPLES
from penstock.service.problems import MEDIA_TYPE as PROBLEM_TYPE
from penstock.service.problems import Problem
from penstock.service.responses import EVENTS, LINES, EncodedBody
from penstock.service.routing import Route
from penstock.service.wire.patterns import portable
from penstock.stores.wire import CALLS
from penstock.stores.wire import MEDIA_TYPE as PACKED_TYPE

VERSION: Final = "1"
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"}
_FORMS: Final = {
    "move": {"type": "string", "enum": sorted(CALLS)},
    "worker": {"type": "string", "pattern": f"^{WORKER_FORM}$"},
}
"""The forms of words in a path that are not names as those of queues and jobs are."""
_PACKED: Final = {PACKED_TYPE: {"schema": {"type": "string", "format": "binary"}}}
_REFUSALS: Final = {
    "400": "Some of the input cannot be used",
    "401": "There is no token, or it is not accepted",
    "403": "The token does not allow this",
    "404": "There is nothing of that name",
    "409": "It cannot be done as things are",
    "410": "Events after the cursor are gone",
    "422": "The idempotency key stands for another payload",
    "429": "Too many, or a quota is used up; Retry-After says when to come back",
    "503": "The store cannot be reached, or the service is stopping",
}
_OPEN: Final = ("400", "503")


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI document. It reveals nothing about a tenant, and anybody may read it."""
    rows = list(routes)
    kinds = [kind for row in rows for kind in (row.takes, row.gives, row.query) if _is_model(kind)]
    unique = list({id(kind): kind for kind in [*kinds, Problem]}.values())
    schemas, components = portable(
        msgspec.json.schema_components(unique, ref_template="#/components/schemas/{name}")
    )
    known = {id(kind): schema for kind, schema in zip(unique, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, known, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": VERSION,
            "summary": "Jobs of many tenants, for producers and workers in any language.",
        },
        "security": [{"bearer": []}],
        "tags": [{"name": noun} for noun in dict.fromkeys(row.noun for row in rows)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


def _operation(row: Route, known: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    summary, _, more = (inspect.getdoc(row.handler) or "").partition("\n\n")
    said: dict[str, Any] = {
        "operationId": row.name,
        "tags": [row.noun],
        "summary": summary,
        "parameters": [*_in_path(row), *_in_query(row, components), *_in_headers(row)],
        "responses": _responses(row, known),
    }
    if more:
        said["description"] = more
    if row.verb is None:
        said["security"] = []
    else:
        said["x-verb"] = str(row.verb)
    if row.takes is bytes:
        said["requestBody"] = {"required": True, "content": _PACKED}
    elif row.takes is not None:
        content: dict[str, Any] = {"schema": known[id(row.takes)]}
        if row.name in EXAMPLES:
            content["example"] = EXAMPLES[row.name]
        said["requestBody"] = {"required": True, "content": {"application/json": content}}
    return said


def _in_path(row: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "enum": sorted(CALLS)}
            if name == "move"
            else _FORMS.get(name, _NAME),
        }
        for name in row.parameters
    ]


def _in_query(row: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    if row.query is None:
        return []
    schema = components[row.query.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field}
        for name, field in schema["properties"].items()
    ]


def _in_headers(row: Route) -> list[dict[str, Any]]:
    if not row.idempotent:
        return []
    about = "The same key again gives the same job"
    schema = {"type": "string", "minLength": 1, "maxLength": 512}
    return [{"name": "Idempotency-Key", "in": "header", "description": about, "schema": schema}]


def _responses(row: Route, known: dict[int, Any]) -> dict[str, Any]:
    described = {
        status: {
            "description": about,
            "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, about in _REFUSALS.items()
        if row.verb is not None or status in _OPEN
    }
    if row.is_stream:
        media = LINES if row.takes is bytes else EVENTS
        content: dict[str, Any] = {media: {"schema": {"type": "string"}}}
    elif row.media is not None:
        content = {row.media: {"schema": {"type": "string"}}}
    elif row.gives is EncodedBody:
        content = _PACKED if row.verb is not None else {"application/json": {"schema": {"type": "object"}}}
    elif row.gives is None:
        content = {}
    else:
        content = {"application/json": {"schema": known[id(row.gives)]}}
    for status in sorted({row.status, *row.also}):
        described[str(status)] = {"description": "Success", **({"content": content} if content else {})}
    return described


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
