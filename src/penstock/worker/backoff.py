"""How a worker bears a store that does not answer: it waits longer each time, and says once why."""

import logging
import random
from typing import Final

from penstock.core.errors import (
    DamagedQueueError,
    StoreError,
    StoreFormatError,
    StoreReadOnlyError,
    StoreVersionError,
)
from penstock.core.repeated_failures import RepeatedFailures
from penstock.core.retry_pause import RetryPause

FIRST: Final = 0.05
CAP: Final = 3.0
HARD: Final = (StoreFormatError, StoreVersionError, StoreReadOnlyError)
"""Failures that no waiting mends. A damaged queue is none: other queues go on until people mend it."""


class StoreBackoff:
    """Failures in a row of one kind of call."""

    def __init__(self, logger: logging.Logger, what: str, extra: dict[str, object]) -> None:
        self._logger = logger
        self._what = what
        self._extra = extra
        self._failures = 0
        self._reasons = RepeatedFailures()

    @property
    def is_on(self) -> bool:
        """True while the last call failed."""
        return self._failures > 0

    def failed(self, error: StoreError, cap: float = CAP) -> float:
        """Seconds to wait before the next call, with full jitter; raises what no waiting mends."""
        if isinstance(error, HARD) and not isinstance(error, DamagedQueueError):
            raise error
        if self._reasons.is_new(error):
            self._logger.warning("%s failed, will repeat: %s", self._what, error, extra=self._extra)
        self._failures += 1
        return RetryPause(FIRST, cap).after(self._failures, random.uniform)

    def over(self) -> None:
        """A call went through."""
        if self._failures:
            self._logger.info(
                "%s works again after %d failures", self._what, self._failures, extra=self._extra
            )
            self._failures = 0
            self._reasons.over()
