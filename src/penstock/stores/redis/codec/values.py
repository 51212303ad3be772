"""How scripts write what may be missing."""

# Scripts write false for None: an array with a hole would not be one to them.
Text = str | bool
Number = int | bool


def text_or_none(value: Text) -> str | None:
    """The text; None where there is none."""
    return value if isinstance(value, str) else None


def number_or_none(value: Number) -> int | None:
    """The number; None where there is none."""
    return None if value is False else value
