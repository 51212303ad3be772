"""SQL functions that search text in a time that grows with the text alone.

SQLite's own compare the pattern at every place of the text, in one step that nothing interrupts.
"""

import sqlite3
from functools import partial

_Value = str | bytes | int | float | None


def add_text_functions(base: sqlite3.Connection, most: int) -> None:
    """Put them in the place of SQLite's own; none makes a value of more than `most` characters."""
    base.create_function("instr", 2, _instr, deterministic=True)
    base.create_function("replace", 3, partial(_replace, most), deterministic=True)
    for name, left, right in (("trim", True, True), ("ltrim", True, False), ("rtrim", False, True)):
        for arguments in (1, 2):
            base.create_function(name, arguments, partial(_trim, left, right), deterministic=True)


def _instr(text: _Value, wanted: _Value) -> int | None:
    if text is None or wanted is None:
        return None
    if isinstance(text, bytes) and isinstance(wanted, bytes):
        return text.find(wanted) + 1
    return _text(text).find(_text(wanted)) + 1


def _replace(most: int, text: _Value, old: _Value, new: _Value) -> str | None:
    if text is None or old is None or new is None:
        return None
    whole, before, after = _text(text), _text(old), _text(new)
    if not before:
        return whole
    if len(whole) + whole.count(before) * (len(after) - len(before)) > most:
        raise ValueError(f"replace makes more than {most} characters")
    return whole.replace(before, after)


def _trim(left: bool, right: bool, text: _Value, signs: _Value = " ") -> str | None:
    if text is None or signs is None:
        return None
    whole, unwanted = _text(text), frozenset(_text(signs))
    start, end = 0, len(whole)
    while left and start < end and whole[start] in unwanted:
        start += 1
    while right and start < end and whole[end - 1] in unwanted:
        end -= 1
    return whole[start:end]


def _text(value: str | bytes | float) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
