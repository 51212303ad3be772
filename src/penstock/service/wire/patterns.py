"""Texts of a given form: the whole text, to its very end."""

from typing import Any, Final

from msgspec import Meta

_END: Final = r"\Z"


def whole(form: str, description: str | None = None) -> Meta:
    """A text that is all of this form. In Python `$` would also stand before a line break at the end."""
    return Meta(pattern=f"^{form}{_END}", description=description)


def portable(schema: Any) -> Any:
    """The schema with patterns as JSON Schema writes them: there `$` is the very end."""
    if isinstance(schema, list | tuple):
        return [portable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: f"{value.removesuffix(_END)}$"
        if name == "pattern" and isinstance(value, str) and value.endswith(_END)
        else portable(value)
        for name, value in schema.items()
    }
