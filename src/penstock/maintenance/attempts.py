"""Calls that may fail and are made again: failures are logged when they begin and when they are over."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from penstock.core.errors import PenstockError
from penstock.core.repeated_failures import RepeatedFailures

T = TypeVar("T")


class Attempts:
    """Failures by what was attempted and what it was about."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._failing: dict[str, RepeatedFailures] = {}

    async def attempt(
        self,
        what: str,
        work: Callable[[], Awaitable[T]],
        about: Mapping[str, object],
        *,
        is_logged: bool = True,
    ) -> T | None:
        """The answer; None when it failed."""
        try:
            answer = await work()
        except PenstockError as error:
            if is_logged:
                self.failed(what, str(error), about)
        except Exception as error:
            # A defect is logged, whichever call meets it.
            if self._reasons(what, about).is_new(str(error)):
                self._logger.exception("%s failed, will repeat", what, extra=dict(about))
        else:
            if is_logged:
                self.over(what, about)
            return answer
        return None

    def failed(self, what: str, why: str, about: Mapping[str, object]) -> None:
        """Log a failure unless its reason was logged before."""
        if self._reasons(what, about).is_new(why):
            self._logger.warning("%s failed, will repeat: %s", what, why, extra=dict(about))

    def over(self, what: str, about: Mapping[str, object]) -> None:
        """It works, and that is logged where it did not before."""
        if self._failing.pop(_key(what, about), None) is not None:
            self._logger.info("%s works again", what, extra=dict(about))

    def _reasons(self, what: str, about: Mapping[str, object]) -> RepeatedFailures:
        return self._failing.setdefault(_key(what, about), RepeatedFailures())


def _key(what: str, about: Mapping[str, object]) -> str:
    return f"{what} {sorted(about.items())}"
