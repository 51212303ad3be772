"""A scratch table for tests, and a way to let the checker keep next to nothing in memory."""

from collections.abc import Iterable, Iterator

import pytest

from penstock.core.history import lines, queue, scratch


class DictTable:
    """A table that is a dict."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self._entries.get(key)

    def put(self, entries: Iterable[tuple[str, bytes]]) -> None:
        self._entries.update(entries)

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._entries.pop(key, None)

    def ordered(self) -> Iterator[tuple[str, bytes]]:
        yield from sorted(self._entries.items())


def spill_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each event everything goes to scratch tables."""
    monkeypatch.setattr(scratch, "HOT", 0)
    monkeypatch.setattr(lines, "CHUNK", 1)
    monkeypatch.setattr(queue, "TRIM_EVERY", 1)
