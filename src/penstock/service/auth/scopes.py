"""Scopes of a token: verbs, each for all queues or for those that a pattern names."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from penstock.core.errors import OptionError
from penstock.service.principal import Verb

ALL: Final = "*"
MOST: Final = 100
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*-]{1,128}")
_WANTED: Final = (
    f"one of {', '.join(Verb)} or *, alone or with a pattern of queues behind a colon, such as read:mail.*"
)


class Scope(msgspec.Struct, frozen=True):
    """A verb, or all of them, in the queues that the pattern names; `*` stands for any signs."""

    verb: str
    pattern: str = ALL

    def __str__(self) -> str:
        return self.verb if self.pattern == ALL else f"{self.verb}:{self.pattern}"


class Scopes(msgspec.Struct, frozen=True):
    """All that a token allows. Without any, nothing."""

    allowed: tuple[Scope, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.allowed))

    def allow(self, verb: str, queue: str | None = None) -> bool:
        """True when the verb is allowed in this queue; without one, when it is in some queue.

        A queue called `*`, which cannot be, asks whether it is allowed in all of them.
        """
        return any(
            scope.verb in (verb, ALL) and (queue is None or matches(scope.pattern, queue))
            for scope in self.allowed
        )


def read_scopes(words: Iterable[str]) -> Scopes:
    """The scopes among these words. Others are passed over: a token may be for many services."""
    found = (_read(word) for word in words)
    return Scopes(tuple(scope for scope in found if scope is not None)[:MOST])


def check_scopes(field: str, words: Iterable[str]) -> Scopes:
    """The same of words that someone meant for this service; OptionError for one that is no scope."""
    given = list(words)
    for word in given:
        if _read(word) is None:
            raise OptionError(field, word, _WANTED)
    if not 0 < len(given) <= MOST:
        raise OptionError(field, f"{len(given)} scopes", f"1 to {MOST}")
    return read_scopes(given)


def is_pattern(text: str) -> bool:
    """True for what can stand for names of queues or tenants."""
    return _PATTERN.fullmatch(text) is not None


def matches(pattern: str, name: str) -> bool:
    """True when the pattern names it; a name of `*` stands for all names.

    >>> matches("mail.*", "mail.eu"), matches("mail.*", "mail"), matches("*", "*")
    (True, False, True)
    """
    # Not as a regular expression: `*a*a*a*…` would take its time.
    if ALL not in pattern:
        return pattern == name
    if name == ALL:
        return not pattern.strip(ALL)
    return _glob(tuple(pattern.split(ALL)), name)


def _read(word: str) -> Scope | None:
    verb, colon, pattern = word.partition(":")
    if verb not in (*Verb, ALL) or (colon and not is_pattern(pattern)):
        return None
    return Scope(verb, pattern if colon else ALL)


@lru_cache(maxsize=4_096)
def _glob(parts: tuple[str, ...], name: str) -> bool:
    first, *middle, last = parts
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
