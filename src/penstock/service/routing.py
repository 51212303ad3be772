"""The table of routes: from a method and a path to a handler, and what a handler takes and returns.

A handler says it all by its signature: `request`, the names in its path, `query` for parameters, `body` for
what is sent, and what it returns. The OpenAPI document and the tests read the same table.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, get_args, get_origin

import msgspec

from penstock.service.errors import NotFoundError, WrongMethodError
from penstock.service.principal import Verb
from penstock.service.responses import Response, StreamResponse

Handler = Callable[..., Awaitable[Any]]
_OWN: Final = frozenset({"request", "body", "query", "return"})


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `verb` is what a token has to allow; None lets everybody in."""

    method: str
    path: str
    verb: Verb | None
    handler: Handler
    status: int
    takes: Any = None
    query: Any = None
    gives: Any = None
    is_stream: bool = False
    media: str | None = None
    """The media type of a body that is text."""
    also: tuple[int, ...] = ()
    """Other statuses of success."""
    idempotent: bool = False
    """True where the header `Idempotency-Key` is read."""
    is_costly: bool = False
    """True where a request reads or changes many records: one of a tenant is handled at a time."""
    costly_calls: frozenset[str] = frozenset()
    """Calls, named in the path, that are costly."""

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.handler.__name__

    @property
    def noun(self) -> str:
        """The noun of the route: the name of its module."""
        return self.handler.__module__.rpartition(".")[2]

    def is_costly_with(self, values: Mapping[str, str]) -> bool:
        """True for a costly request, by the values of the names in its path."""
        return self.is_costly or values.get("move") in self.costly_calls

    @property
    def parameters(self) -> list[str]:
        """The names in the path, in order."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


class Routes:
    """The rows of one module.

    >>> routes = Routes()
    >>> @routes.get("/v1/jobs/{id}", Verb.READ)
    ... async def show(request: object, id: str) -> None: ...
    >>> [(row.method, row.path, row.parameters) for row in routes]
    [('GET', '/v1/jobs/{id}', ['id'])]
    """

    def __init__(self) -> None:
        self._rows: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._rows)

    def get(self, path: str, verb: Verb | None, **more: Any) -> Callable[[Handler], Handler]:
        """Add a route that reads."""
        return self._add("GET", path, verb, **more)

    def post(self, path: str, verb: Verb | None, **more: Any) -> Callable[[Handler], Handler]:
        """Add a route that creates or changes."""
        return self._add("POST", path, verb, **more)

    def put(self, path: str, verb: Verb | None, **more: Any) -> Callable[[Handler], Handler]:
        """Add a route that creates or replaces."""
        return self._add("PUT", path, verb, **more)

    def delete(self, path: str, verb: Verb | None, **more: Any) -> Callable[[Handler], Handler]:
        """Add a route that deletes."""
        return self._add("DELETE", path, verb, **more)

    def _add(
        self, method: str, path: str, verb: Verb | None, *, status: int = 200, **more: Any
    ) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            hints = inspect.get_annotations(handler, eval_str=True)
            gives = hints.get("return")
            if get_origin(gives) is Response:
                (gives,) = get_args(gives)
            row = Route(
                method=method,
                path=path,
                verb=verb,
                handler=handler,
                status=status,
                takes=hints.get("body"),
                query=hints.get("query"),
                gives=gives,
                is_stream=gives is StreamResponse,
                **more,
            )
            if sorted(hints.keys() - _OWN) != sorted(row.parameters):
                raise TypeError(f"{row.name} and {path} name different parameters")
            self._rows.append(row)
            return handler

        return register


class Router:
    """Finds the row of a request. A name in a path stands for any text between two slashes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._tree: dict[Any, Any] = {}
        for row in routes:
            node = self._tree
            for part in row.path.strip("/").split("/"):
                node = node.setdefault("{}" if part.startswith("{") else part, {})
            node.setdefault(None, {})[row.method] = row

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The row and the values of the names in its path."""
        node, values = self._tree, []
        for part in path.removeprefix("/").split("/"):
            if part in node and part != "{}":
                node = node[part]
            elif part and "{}" in node:
                node = node["{}"]
                values.append(part)
            else:
                raise NotFoundError(f"no path {path!r}")
        rows: dict[str, Route] = node.get(None, {})
        if not rows:
            raise NotFoundError(f"no path {path!r}")
        if method not in rows:
            allowed = ", ".join(sorted(rows))
            raise WrongMethodError(f"found {method}, wanted {allowed}", allowed)
        row = rows[method]
        return row, dict(zip(row.parameters, values, strict=True))
