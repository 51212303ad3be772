"""Loads the scripts, joins their includes and fills in the names of codec/names.py.

`-- include: folder/name` is replaced by that file, or by the part of it above its `-- main` line: so that one
move can make another on its way. A file is joined in once, however many ask for it. `-- flags: …` becomes the
flags of the script: without allow-oom a server at its maxmemory refuses to begin it.

The server makes every function of a script anew with every call. So functions that nobody calls are left out,
and a line `-- frame` begins a function around all that follows: what was declared before it is bound to the
functions inside without a search.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.errors import StoreError
from penstock.stores.redis.codec.names import NAMES

_FOLDER: Final = Path(__file__).parent / "lua"
_INCLUDE: Final = re.compile(r"-- include: (\S+)")
_FLAGS: Final = re.compile(r"^-- flags: (.+)$", re.MULTILINE)
_MAIN: Final = "-- main"
_FRAME: Final = "-- frame"
_FUNCTION: Final = re.compile(
    r"^local function (\w+)\((?:[^\n]* end|[^\n]*\)\n.*?^end)$", re.MULTILINE | re.DOTALL
)
# Strings and comments are passed over.
_WORD: Final = re.compile(r"'(?:[^'\\]|\\.)*'|--.*|\b([A-Za-z_]\w*)")


class Script(msgspec.Struct, frozen=True):
    """A script as the server gets it, and the name it goes by there."""

    text: str
    sha: str


class Scripts:
    """All scripts by their path without the ending, `queues/open`; that of a move by its name, `claim`."""

    def __init__(self, sources: Mapping[str, str] | None = None) -> None:
        self._sources = {**loaded_sources(), **(sources or {})}
        self._joined: dict[str, Script] = {}

    def get(self, name: str) -> Script:
        """The script of that name."""
        script = self._joined.get(name)
        if script is None:
            text = self._text(name if "/" in name else f"moves/{name}")
            script = Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
            self._joined[name] = script
        return script

    def _text(self, name: str) -> str:
        path = f"{name}.lua"
        flags = _FLAGS.search(self._source(path))
        first = "#!lua" if flags is None else f"#!lua flags={flags[1]}"
        joined = _framed(_used(_named("\n".join(self._lines(path, set())))))
        return "\n".join([first, joined]) + "\n"

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
            wanted = f"{include[1]}.lua"
            if wanted not in seen:
                yield from self._lines(wanted, seen)

    def _source(self, path: str) -> str:
        try:
            return self._sources[path]
        except KeyError:
            raise StoreError(f"the script {path} is missing: the installation is not whole") from None


def _named(text: str) -> str:
    """The text with what stands for each name in its place."""
    return _WORD.sub(lambda found: NAMES.get(found[1], found[0]), text)


def _used(text: str) -> str:
    """The text without the functions that are not used by what is left of it."""
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(text)}
    words = {name: _words(body) for name, body in functions.items()}
    all_words = _words(text)
    while unused := [name for name in words if all_words[name] == words[name][name]]:
        for name in unused:
            all_words -= words.pop(name)
    return _FUNCTION.sub(lambda found: found[0] if found[1] in words else "", text)


def _words(text: str) -> Counter[str]:
    return Counter(found[1] for found in _WORD.finditer(text) if found[1])


def _framed(text: str) -> str:
    before, frame, rest = text.partition(f"{_FRAME}\n")
    return f"{before}return (function()\n{rest}\nend)()" if frame else text


@cache
def loaded_sources() -> Mapping[str, str]:
    """The texts as they are installed, by their path below lua/."""
    return {
        path.relative_to(_FOLDER).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(_FOLDER.rglob("*.lua"))
    }
