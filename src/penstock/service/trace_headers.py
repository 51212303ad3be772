"""The context of a trace in the headers of a request, which the jobs that it creates carry on."""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, UnsetType

from penstock.core.errors import OptionError
from penstock.core.headers import TRACEPARENT, TRACESTATE, check_headers

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def traced(request_headers: Mapping[str, str], own: dict[str, str] | UnsetType) -> dict[str, Any]:
    """The option `headers` of a job: its own ones, and the trace of its request.

    What is no context is passed over, as W3C has it, and so is one for which there is no room.
    """
    headers = {} if own is UNSET else own
    parent = request_headers.get(TRACEPARENT, "")
    if TRACEPARENT in headers or not _TRACEPARENT.fullmatch(parent):
        return {}
    state = request_headers.get(TRACESTATE)
    for trace in ({TRACEPARENT: parent, TRACESTATE: state or ""}, {TRACEPARENT: parent}):
        try:
            return {"headers": check_headers("headers", headers | {k: v for k, v in trace.items() if v})}
        except OptionError:
            continue
    return {}
