"""Headers of a job: small texts by name that no rule reads, such as the context of a trace."""

import re
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import OptionError

MOST_HEADERS: Final = 32
HEADERS_BYTES: Final = 4_096
"""Bytes of all names and values together."""
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VALUE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*")


def check_headers(field: str, value: object) -> dict[str, str] | None:
    """The headers, None for an empty mapping; OptionError says what cannot be."""
    if not isinstance(value, Mapping):
        raise OptionError(field, value, "a mapping of names to texts")
    if len(value) > MOST_HEADERS:
        raise OptionError(field, f"{len(value)} headers", f"at most {MOST_HEADERS}")
    size = 0
    for name, text in value.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            wanted = "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
            raise OptionError(f"{field} name", name, wanted)
        if not isinstance(text, str) or not _VALUE.fullmatch(text):
            raise OptionError(f"{field}.{name}", text, "text without control characters")
        size += len(name) + len(text.encode())
    if size > HEADERS_BYTES:
        raise OptionError(field, f"{size} bytes", f"at most {HEADERS_BYTES} bytes of names and values")
    return dict(value) or None


def trace_context(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Of these headers, those that carry the context of a trace: all that children inherit.

    >>> trace_context({"traceparent": "00-1-2-01", "customer": "ada"})
    {'traceparent': '00-1-2-01'}
    """
    if not headers:
        return {}
    return {name: headers[name] for name in (TRACEPARENT, TRACESTATE) if name in headers}
