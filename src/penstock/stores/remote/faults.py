"""What a service refuses, and what goes wrong on the way, in Penstock's own errors and without secrets."""

import ssl
from typing import Any, Final

import msgspec

from penstock.core import errors
from penstock.core.errors import (
    ConfigError,
    CursorLostError,
    InvalidError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from penstock.core.payload import Description
from penstock.stores.remote.address import Target
from penstock.stores.remote.connection import Answer, LateAnswerError

PROBLEM: Final = b"application/problem+json"
_AWAY: Final = frozenset({408, 425, 429, 502, 503, 504})


class _Fault(msgspec.Struct):
    wanted: str
    found: str | None = None
    pointer: str | None = None
    parameter: str | None = None


class _Problem(msgspec.Struct):
    type: str
    title: str
    status: int
    detail: str
    error: str | None = None
    errors: list[_Fault] = []
    trimmed: tuple[int, int] | None = None


class Faults:
    """Translates for one service.

    A service that refuses the token when it is first used has another one in mind. If it does so after it
    `is_proven`, a token ran out or keys are being changed: that passes, and whoever can wait should.
    """

    def __init__(self, target: Target) -> None:
        self._at = f"the service at {target.shown}"
        self._token = target.token
        self.is_proven = False

    def lost(self, error: OSError) -> PenstockError:
        """What is wrong with a connection."""
        if isinstance(error, LateAnswerError):
            return StoreTimeoutError(f"{self._at} did not answer in time ({error})")
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message or error.reason
            return ConfigError(f"{self._at} showed a certificate that is not accepted: {why}")
        return StoreUnavailableError(f"{self._at} cannot be reached: {error.strerror or error}")

    def refused(self, answer: Answer) -> PenstockError:
        """The error that an answer tells of."""
        if answer.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == PROBLEM:
            try:
                return self._problem(msgspec.json.decode(answer.body, type=_Problem))
            except msgspec.MsgspecError:
                pass
        if answer.status in _AWAY:
            return StoreUnavailableError(f"{self._at} cannot serve now: it answers {answer.status}")
        if 300 <= answer.status < 400:
            return ConfigError(f"{self._at} sends its visitors elsewhere: the url has to name the last place")
        return StoreFormatError(f"{self._at} is not a service of Penstock: it answers {answer.status}")

    def _problem(self, problem: _Problem) -> PenstockError:
        said = f"{problem.title} ({problem.detail})" if problem.detail != problem.title else problem.title
        known = getattr(errors, problem.error or "", None)
        if isinstance(known, type) and issubclass(known, PenstockError):
            return self._known(known, problem)
        if problem.status == 401 and self._token.text is None:
            return ConfigError(
                f"{self._at} wants a token: set PENSTOCK_TOKEN, or name a token_file in the url"
            )
        if problem.status == 401:
            return self._no_longer(f"does not accept the token: {problem.detail}")
        if problem.status == 403:
            return ConfigError(f"{self._at} does not let this token do what was asked: {problem.detail}")
        if problem.status in _AWAY:
            return StoreUnavailableError(f"{self._at} cannot serve now: {said}")
        if problem.status == 404:
            return StoreFormatError(f"{self._at} does not have what was asked for: {problem.detail}")
        return StoreError(f"{self._at} failed: {said}")

    def _known(self, kind: Any, problem: _Problem) -> PenstockError:
        error: PenstockError
        if issubclass(kind, InvalidError):
            fault = problem.errors[0] if problem.errors else _Fault(problem.detail)
            error = kind(_field(fault), Description(fault.found or "nothing"), fault.wanted)
        elif issubclass(kind, CursorLostError):
            error = kind(problem.detail, problem.trimmed)
        elif issubclass(kind, StoreError):
            # Its own words stay with the service: they can name files and hosts.
            error = kind(f"{self._at}: {problem.detail}")
        else:
            error = kind(problem.detail)
        return error

    def _no_longer(self, why: str) -> PenstockError:
        if self.is_proven:
            return StoreUnavailableError(f"{self._at} worked before and now {why}")
        return ConfigError(f"{self._at} {why}")


def _field(fault: _Fault) -> str:
    """From a pointer to the name of a field, as `jobs[3].id`."""
    parts = (fault.pointer or f"/{fault.parameter or 'body'}").split("/")[1:]
    named = [part.replace("~1", "/").replace("~0", "~") for part in parts]
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in named).removeprefix(".")
