"""Makes room for connections among the files that the process may open."""

import logging
import resource
from typing import Final

import msgspec

from penstock.service.connections import RESERVED
from penstock.service.limits import Limits

_LOGGER: Final = logging.getLogger("penstock.service")
OTHERS: Final = 256
"""File descriptors for the store, webhooks and connections that are being closed."""


def fitted(limits: Limits) -> Limits:
    """Raise the soft limit on open files as far as is needed; where it is too low, lower the limits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limits.connections + RESERVED + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits
    soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft >= needed:
        return limits
    connections = max(1, min(soft - RESERVED - OTHERS, limits.connections), soft // 4)
    _LOGGER.warning(
        "the process may open %d files: at most %d connections are served in place of %d. "
        "Allow more file descriptors (ulimit -n)",
        soft,
        connections,
        limits.connections,
    )
    return msgspec.structs.replace(
        limits, connections=connections, streams=max(1, min(limits.streams, connections // 2))
    )
