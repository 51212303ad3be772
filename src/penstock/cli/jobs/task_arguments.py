"""Building a payload from the arguments of a task on the command line."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock.core.errors import ConfigError, OptionError, PayloadError
from penstock.core.payload import check_json, decode_json, encode_json
from penstock.tasks.context import JobContext
from penstock.tasks.task import Task

Values = dict[str, tuple[Any, str | None]]
"""Per name: the value, and the text that it was parsed from if the text itself could be meant."""


def read_arguments(pairs: Sequence[str], payload: str | None) -> Values:
    """The arguments given as `key=value`, and as a JSON payload: text, @file, or - for standard input.

    A value that parses as JSON is that value, any other is text: n=3 is a number, to=ada is text.
    """
    values: Values = (
        {} if payload is None else {name: (each, None) for name, each in _read_payload(payload).items()}
    )
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise OptionError("argument", pair, "key=value; a whole payload goes with --payload")
        if name in values:
            raise OptionError("argument", pair, f"{name} once")
        try:
            values[name] = msgspec.json.decode(text), text
        except (msgspec.DecodeError, UnicodeEncodeError):
            values[name] = text, None
    return values


def encode_arguments(values: Values) -> bytes:
    """The payload for a task whose signature is not known."""
    plain = {name: value for name, (value, _) in values.items()}
    check_json("payload", plain)
    return encode_json("payload", plain)


def fit_arguments(task: Task[..., ..., Any], values: Values) -> bytes:
    """The payload for this task, checked against its signature; an argument of type text keeps its text."""
    order = {name: at for at, name in enumerate(inspect.signature(task.function).parameters)}
    # Equal calls give equal bytes in whatever order their arguments are written: idempotency compares bytes.
    values = dict(sorted(values.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))
    while True:
        payload = encode_arguments(values)
        try:
            task.bind(payload, cast(JobContext, None))
        except PayloadError as error:
            name = error.field.partition(".")[0].partition("[")[0]
            text = values.get(name, (None, None))[1]
            if text is None:
                raise
            values[name] = text, None
        else:
            return payload


def _read_payload(payload: str) -> dict[str, Any]:
    if payload == "-":
        text = sys.stdin.buffer.read()
    elif payload.startswith("@"):
        try:
            text = Path(payload[1:]).read_bytes()
        except OSError as error:
            raise ConfigError(f"--payload: {payload[1:]}: {error.strerror or error}") from None
    else:
        text = payload.encode("utf-8", "surrogateescape")
    value = decode_json("--payload", text)
    if not isinstance(value, dict):
        raise PayloadError("--payload", value, "a JSON object: the arguments by name")
    return value
