"""Text of SQL from the core's own tables."""

from collections.abc import Iterable


def listed(values: Iterable[str]) -> str:
    """Texts as SQL has them between parentheses: `'a', 'b'`."""
    return ", ".join(f"'{value}'" for value in sorted(values))
