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
from penstock.explain.words import local, span, utc

__all__ = ["Output", "local", "printable", "span", "utc", "without_none"]

LAST_WIDTH: Final = 16
"""What the last column is cut to before others are dropped."""


class Output:
    """One command's standard output. With `json` only documents are written, else only text."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        if not self.console.is_terminal and "COLUMNS" not in os.environ:
            # Into a pipe or a file nothing is cut.
            self.console.width = 10_000

    def document(self, value: object) -> None:
        """One JSON document, or one line of a stream of them."""
        if self.json:
            sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
            sys.stdout.flush()

    def line(self, text: str = "") -> None:
        """One line of text."""
        if not self.json:
            self.console.print(Text(printable(text)))

    def note(self, text: str) -> None:
        """A line about what is going on, on standard error."""
        sys.stderr.write(printable(text) + "\n")

    def confirm(self, question: str) -> None:
        """Ask whoever sits at the terminal, on standard error; Abort unless the answer is yes."""
        if not sys.stdin.isatty():
            raise ConfigError(f"{question} There is nobody to ask: use --yes")
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
        """A table that fits the terminal: columns in `drop` go first, in that order, then the last is cut.

        Columns in `wrap` are not cut: their text goes on in the next line. Columns in `right` are numbers.
        A line below names what had no room.
        """
        if self.json:
            return
        cells = [[printable("" if cell is None else str(cell)) for cell in row] for row in rows]
        widths = {
            column: max([cell_len(column), *(cell_len(row[at]) for row in cells)])
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
            table.add_row(*(Text(shown[column]) for column in kept))
        self.console.print(table, soft_wrap=False)
        if gone := [column for column in columns if column not in kept]:
            self.console.print(f"no room for {', '.join(gone)}: --json has all", soft_wrap=False)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Names and values, one per line; what is None is left out."""
        known = [(name, str(value)) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            first, *rest = printable(value, lines=True).split("\n")
            self.line(f"{name.ljust(width)}  {first}")
            for more in rest:
                self.line(f"{' ' * width}  {more}")


def _fitting(columns: list[str], widths: dict[str, int], drop: Sequence[str], width: int) -> list[str]:
    def needed() -> int:
        *others, last = columns
        return sum(widths[column] for column in others) + 3 * len(others) + min(widths[last], LAST_WIDTH)

    for column in drop:
        if len(columns) > 1 and needed() > width:
            columns.remove(column)
    return columns


def _wrap(wrapped: list[str], kept: list[str], widths: dict[str, int], width: int) -> None:
    """Make columns narrower until the table fits, the widest first, down to what can still be read."""
    excess = sum(widths[column] for column in kept) + 3 * (len(kept) - 1) - width
    while excess > 0 and wrapped:
        widest = max(wrapped, key=lambda column: widths[column])
        if widths[widest] <= LAST_WIDTH:
            return
        widths[widest] -= 1
        excess -= 1


def printable(text: str, *, lines: bool = False) -> str:
    """Text that cannot steer the terminal: control characters become visible ones."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _visible(c) for c in text)


def _visible(c: str) -> str:
    if c == "\t":
        return "    "
    return chr(0x2400 + ord(c)) if ord(c) < 32 else "\N{REPLACEMENT CHARACTER}"


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: absent is how JSON here says none."""
    return {name: value for name, value in fields.items() if value is not None}
