"""Replies of commands whose flat lists mean something else."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final


def shaped(command: Sequence[Any], reply: Any) -> Any:
    """The reply to a command, in the shape it is meant in."""
    shape = _SHAPES.get(command[0])
    return reply if shape is None or reply is None else shape(reply)


def pairs(flat: Sequence[Any]) -> dict[Any, Any]:
    """A list of names and values in turn, as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _facts(reply: bytes) -> Mapping[str, str]:
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon and not name.startswith("#")}


_SHAPES: Final[Mapping[Any, Callable[[Any], Any]]] = {
    "HGETALL": pairs,
    "SMEMBERS": set,
    "INFO": _facts,
}
