"""Loads the scripts and joins their includes.

`-- include: name` is replaced by `include/name.lua`, or by the part of `name.lua` above its `-- main` line
when one move makes another on its way. A file is joined in once, however many ask for it. `-- flags: …`
becomes the flags of the script: without allow-oom a server at its maxmemory refuses to begin it.

Names in capitals that stand for numbers or keys are replaced by what they stand for: each would be a variable
that the server binds to every function using it, anew with every call.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.errors import StoreError

_FOLDER: Final = Path(__file__).parent / "lua"
_INCLUDE: Final = re.compile(r"-- include: (\S+)")
_FLAGS: Final = re.compile(r"^-- flags: (.+)$", re.MULTILINE)
_MAIN: Final = "-- main"
_NUMBERS: Final = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)(?: --.*)?$", re.MULTILINE)
_KEYS: Final = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = unpack\(KEYS, (\d+), \d+\)$", re.MULTILINE)


class Script(msgspec.Struct, frozen=True):
    """A script as the server gets it, and the name it goes by there."""

    text: str
    sha: str


class Scripts:
    """All scripts by their path without the ending: `claim`, `queues/open`."""

    def __init__(self, sources: Mapping[str, str] | None = None) -> None:
        self._sources = {**loaded_sources(), **(sources or {})}
        self._joined: dict[str, Script] = {}

    def get(self, name: str) -> Script:
        """The script of that name."""
        script = self._joined.get(name)
        if script is None:
            text = self._text(name)
            script = Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
            self._joined[name] = script
        return script

    def _text(self, name: str) -> str:
        path = f"{name}.lua"
        flags = _FLAGS.search(self._source(path))
        first = "#!lua" if flags is None else f"#!lua flags={flags[1]}"
        return "\n".join([first, _inlined("\n".join(self._lines(path, set())))]) + "\n"

    def _lines(self, path: str, seen: set[str]) -> Iterator[str]:
        is_included = bool(seen)
        seen.add(path)
        for line in self._source(path).splitlines():
            if is_included and line == _MAIN:
                return
            include = _INCLUDE.fullmatch(line)
            if include is None:
                yield line
                continue
            wanted = f"include/{include[1]}.lua"
            if wanted not in self._sources:
                wanted = f"{include[1]}.lua"
            if wanted not in seen:
                yield from self._lines(wanted, seen)

    def _source(self, path: str) -> str:
        try:
            return self._sources[path]
        except KeyError:
            raise StoreError(f"the script {path} is missing: the installation is not whole") from None


def _inlined(text: str) -> str:
    """The text with values in the place of the names that never change."""
    values: dict[str, str] = {}
    for names, numbers in _NUMBERS.findall(text):
        values |= zip(names.split(", "), numbers.split(", "), strict=True)
    for names, first in _KEYS.findall(text):
        values |= {name: f"KEYS[{at}]" for at, name in enumerate(names.split(", "), start=int(first))}
    # Strings and comments are passed over.
    word = re.compile(r"'(?:[^'\\]|\\.)*'|--.*|\b([A-Z][A-Z_]*)\b")
    return word.sub(lambda found: values.get(found[1], found[0]), _KEYS.sub("", _NUMBERS.sub("", text)))


@cache
def loaded_sources() -> Mapping[str, str]:
    """The texts as they are installed, by their path below lua/."""
    return {
        path.relative_to(_FOLDER).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(_FOLDER.rglob("*.lua"))
    }
