"""What commands print: tables and lines for people, JSON for programs."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.core.errors import ConfigError
from penstock.core.states import State
from penstock.explain.formatting import local, span, utc

__all__ = ["Output", "local", "printable", "span", "utc", "without_none"]

LAST_WIDTH: Final = 16
"""The last column of a table is cut to this width before other columns are left out."""
STYLES: Final[dict[State, str]] = {
    State.BLOCKED: "magenta",
    State.DELAYED: "blue",
    State.PENDING: "cyan",
    State.ACTIVE: "yellow",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.CANCELLED: "bright_black",
    State.DEAD: "bold red",
}
"""The colour of each state on a terminal."""


class Styled(str):
    """A cell of a table with a colour of its own."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> "Styled":
        """The text in that style, a colour such as green."""
        cell = super().__new__(cls, text)
        cell.style = style
        return cell


class Output:
    """The standard output of one command. With `json` it writes documents only, otherwise text only."""

    def __init__(self, *, json: bool, absolute_times: bool = False) -> None:
        self.json = json
        self.absolute_times = absolute_times
        self.console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        if not self.console.is_terminal and "COLUMNS" not in os.environ:
            # Text for a pipe or a file is not cut to a width.
            self.console.width = 10_000

    def document(self, value: object) -> None:
        """Write one JSON object in one line."""
        if self.json:
            sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
            sys.stdout.flush()

    def documents(self, values: Iterable[object]) -> None:
        """Write a list as JSON Lines: one object per line, and nothing for an empty list."""
        for value in values if self.json else ():
            self.document(value)

    def line(self, text: str = "") -> None:
        """Write one line of text."""
        if not self.json:
            self.console.print(Text(printable(text)))

    def note(self, text: str) -> None:
        """Write a line about the progress of the command, on standard error."""
        sys.stderr.write(printable(text) + "\n")

    def time(self, at: int | None, now: int) -> str:
        """A time in a table: relative to the store's time `now`, or in full with --absolute-times."""
        if at is None:
            return ""
        return str(local(at)) if self.absolute_times else relative(at, now)

    def confirm(self, question: str) -> None:
        """Ask the user for consent, on standard error; raise Abort unless the answer is yes."""
        if not sys.stdin.isatty():
            raise ConfigError(f"{question} Standard input is no terminal to ask at: use --yes")
        sys.stderr.write(f"{printable(question)} [y/N]: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise typer.Abort

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: frozenset[str] = frozenset(),
        drop: Sequence[str] = (),
        wrap: Sequence[str] = (),
    ) -> None:
        """Write a table that fits the terminal.

        A table that is too wide loses the columns in `drop`, in that order, and a line below names them; then
        the last column is cut. Columns in `wrap` are not cut: their text continues on the next line. Columns
        in `right` are aligned to the right. A cell that is a `State` or `Styled` has its colour.
        """
        if self.json:
            return
        cells = [[_cell(cell) for cell in row] for row in rows]
        widths = {
            column: max([cell_len(column), *(row[at].cell_len for row in cells)])
            for at, column in enumerate(columns)
        }
        kept = _fitting(list(columns), widths, drop, self.console.width)
        _wrap([column for column in kept if column in wrap], kept, widths, self.console.width)
        taken = sum(widths[column] + 3 for column in kept[:-1])
        widths[kept[-1]] = max(1, min(widths[kept[-1]], self.console.width - taken))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for column in kept:
            table.add_column(
                column,
                justify="right" if column in right else "left",
                no_wrap=column not in wrap,
                overflow="fold" if column in wrap else "ellipsis",
                width=widths[column],
            )
        for row in cells:
            shown = dict(zip(columns, row, strict=True))
            table.add_row(*(shown[column] for column in kept))
        self.console.print(table, soft_wrap=False)
        if gone := [column for column in columns if column not in kept]:
            self.console.print(f"no room for {', '.join(gone)}: --json has all", soft_wrap=False)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Write names and values, one pair per line, without the pairs whose value is None."""
        if self.json:
            return
        known = [(name, value) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            first, *rest = printable(str(value), lines=True).split("\n")
            self.console.print(Text.assemble(f"{name.ljust(width)}  ", (first, style_of(value))))
            for more in rest:
                self.line(f"{' ' * width}  {more}")


def style_of(value: object) -> str:
    """The colour of a state or of a `Styled` text; empty for anything else."""
    if isinstance(value, Styled):
        return value.style
    return STYLES[value] if isinstance(value, State) else ""


def relative(at: int, now: int) -> str:
    """How long ago a time was, or how far ahead it is.

    >>> relative(0, 90_000), relative(90_000, 0)
    ('1 min 30 s ago', 'in 1 min 30 s')
    """
    return f"{span(now - at)} ago" if at <= now else f"in {span(at - now)}"


def _cell(value: object) -> Text:
    return Text(printable("" if value is None else str(value)), style=style_of(value))


def _fitting(columns: list[str], widths: dict[str, int], drop: Sequence[str], width: int) -> list[str]:
    def needed() -> int:
        *others, last = columns
        return sum(widths[column] for column in others) + 3 * len(others) + min(widths[last], LAST_WIDTH)

    for column in drop:
        if len(columns) > 1 and needed() > width:
            columns.remove(column)
    return columns


def _wrap(wrapped: list[str], kept: list[str], widths: dict[str, int], width: int) -> None:
    """Narrow the widest of the columns until the table fits, but none below a width that can be read."""
    excess = sum(widths[column] for column in kept) + 3 * (len(kept) - 1) - width
    while excess > 0 and wrapped:
        widest = max(wrapped, key=lambda column: widths[column])
        if widths[widest] <= LAST_WIDTH:
            return
        widths[widest] -= 1
        excess -= 1


def printable(text: str, *, lines: bool = False) -> str:
    """The text with its control characters made visible, so that it cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _visible(c) for c in text)


def _visible(c: str) -> str:
    if c == "\t":
        return "    "
    return chr(0x2400 + ord(c)) if ord(c) < 32 else "\N{REPLACEMENT CHARACTER}"


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: in JSON output a field without a value is absent."""
    return {name: value for name, value in fields.items() if value is not None}
