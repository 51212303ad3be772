"""The SQL files of this store: one statement per move, made whole from the parts that moves share.

A file has no number of a policy and no reason of its own. A name in braces is an argument: of the line that
includes the file, or else one of CONSTANTS. The server gets its value as part of the statement, so
that its planner knows it.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from penstock.core.clocks import FENCE_LIMIT, FLOOR_US, LONGEST_LEASE_MS, STEP_MS, STEP_US
from penstock.core.decide import CANCELLED
from penstock.core.events import DELETED, ERROR_CHARS
from penstock.core.outcomes import SETTLED_LIMIT

SCHEMA: Final = "penstock"
"""The name of the schema in the files; the name of another schema replaces it."""

_NUMBER: Final = "pg_current_xact_id()"
# A transaction that waited for the queue's row may have a lower number than those that it waited for; its
# events have to follow theirs.
_LAST_NUMBER: Final = (
    f"greatest({_NUMBER}, (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8)"
)
_INCLUDE: Final = re.compile(r"^ *-- include: (\w+)(.*)$")
_ARGUMENT: Final = re.compile(r"\{(\w+)\}")

CONSTANTS: Final[Mapping[str, int | str]] = MappingProxyType(
    {
        "cancelled_reason": CANCELLED,
        "clock_step_ms": STEP_MS,
        "clock_step_us": STEP_US,
        "deleted_reason": DELETED,
        "error_chars": ERROR_CHARS,
        "fence_floor_us": FLOOR_US,
        "highest_fence": FENCE_LIMIT - 1,
        "longest_lease_ms": LONGEST_LEASE_MS,
        "settled_chars": SETTLED_LIMIT,
    }
)
"""The constants of the core that the files use, by their names in the files."""


def load_sources() -> dict[str, str]:
    """The text of every SQL file, by its path below `sql`: `moves/claim.sql`."""
    root = files("penstock.stores.postgres") / "sql"
    return {
        f"{folder.name}/{file.name}": file.read_text("utf-8")
        for folder in root.iterdir()
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def load_migrations() -> list[str]:
    """The text of every migration, oldest first."""
    root = files("penstock.stores.postgres") / "migrations"
    named = sorted((file.name, file) for file in root.iterdir() if file.name.endswith(".sql"))
    return [file.read_text("utf-8") for _, file in named]


def statements(sources: Mapping[str, str], schema: str, *, locked: bool = False) -> dict[str, str]:
    """The statement of every file, by its folder and name: `moves/claim`.

    A line that ends with `-- locked` is left out unless the call holds a lock on the queue's row, and
    one that ends with `-- unlocked` if it does.
    """
    left_out = "-- unlocked" if locked else "-- locked"
    whole = {
        name.removesuffix(".sql"): "\n".join(
            line
            for line in _filled(in_schema(_whole(text, sources), schema)).splitlines()
            if not line.endswith(left_out)
        )
        for name, text in sources.items()
        if not name.startswith("include/")
    }
    return {name: text.replace(_NUMBER, _LAST_NUMBER) for name, text in whole.items()} if locked else whole


@cache
def own_statements(schema: str, *, locked: bool = False) -> Mapping[str, str]:
    """The statements of the store's own files, read once."""
    return MappingProxyType(statements(load_sources(), schema, locked=locked))


def in_schema(text: str, schema: str) -> str:
    """The statement for a store in another schema."""
    return text if schema == SCHEMA else text.replace(f"{SCHEMA}.", f'"{schema}".')


def _whole(text: str, sources: Mapping[str, str]) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        include = _INCLUDE.match(line)
        if include is not None:
            lines.append(_part(sources[f"include/{include[1]}.sql"], include[2]))
        elif not line.lstrip().startswith("--"):
            lines.append(line)
    return "\n".join(lines).strip()


def _part(text: str, arguments: str) -> str:
    for argument in arguments.split(", ")[1:]:
        name, _, value = argument.partition("=")
        text = text.replace(f"{{{name}}}", value)
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def _filled(text: str) -> str:
    """The text with the constants that it names; KeyError for a name without a value."""
    return _ARGUMENT.sub(lambda found: _literal(CONSTANTS[found[1]]), text)


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"
