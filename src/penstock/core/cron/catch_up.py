"""Which instants of a schedule fire now, after a while in which no scheduler ran."""

from enum import StrEnum
from typing import Final, assert_never

import msgspec

from penstock.core.cron.instants import LAST_MS, newest_instants, next_after
from penstock.core.cron.spec import Spec

GRACE_MS: Final = 60_000
"""Within this an instant is not missed: somebody always looks a little late."""
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000


class CatchUp(StrEnum):
    """What happens to instants that passed while no scheduler ran."""

    NONE = "none"
    """They are skipped; only one that has just come fires."""
    LAST = "last"
    """The newest fires, the others are skipped."""
    ALL = "all"
    """The newest ones fire up to the limit, the oldest of them first."""


class Due(msgspec.Struct, frozen=True):
    """The instants to fire now, the oldest first, and the one to wait for."""

    now: tuple[int, ...] = ()
    next: int | None = None


def due(
    spec: Spec,
    policy: CatchUp,
    last_ms: int,
    now_ms: int,
    limit: int = DEFAULT_LIMIT,
    ends_ms: int = LAST_MS,
) -> Due:
    """What to do now, when everything up to and with `last_ms` is dealt with; nothing is due after `ends_ms`.

    Afterwards all is dealt with up to `now_ms`: that is the next `last_ms`. The work is bounded by `limit`,
    however long the gap. A clock that went back finds nothing to do.

    >>> from penstock.core.cron.spec import Every
    >>> due(Every.of(60), CatchUp.LAST, last_ms=0, now_ms=200_000)
    Due(now=(180000,), next=240000)
    """
    until_ms = min(now_ms, ends_ms)
    match policy:
        case CatchUp.NONE:
            found = newest_instants(spec, max(last_ms, now_ms - GRACE_MS - 1), until_ms, 1)
        case CatchUp.LAST:
            found = newest_instants(spec, last_ms, until_ms, 1)
        case CatchUp.ALL:
            found = newest_instants(spec, last_ms, until_ms, min(limit, MAX_LIMIT))
        case _:
            assert_never(policy)
    coming = next_after(spec, max(last_ms, now_ms))
    return Due(tuple(found), None if coming is None or coming > ends_ms else coming)
