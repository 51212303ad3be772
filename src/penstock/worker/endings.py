"""From what a handler returned or raised to how the execution ended."""

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from penstock.core import decide
from penstock.core.decide import Ending, Interrupted, Postponed, Raised, RaisedFail, Returned
from penstock.core.errors import HandlerError, OptionError, ProcessDiedError, SoftTimeoutError
from penstock.core.job import Claimed
from penstock.core.retry import MAX_DELAY_MS
from penstock.tasks import signals
from penstock.worker.delivery import Delivery, Stop

_HERE: Final = str(Path(__file__).parent)


class TracedRetry(signals.Retry):
    """A Retry that was raised in another process, with its traceback there."""

    def __init__(self, after: float, message: str, text: str) -> None:
        super().__init__(after, reason=message)
        self.text = text


class NoHandler(msgspec.Struct, frozen=True):
    """This worker does not know the job's task; another one may."""


class Withdrawn(msgspec.Struct, frozen=True):
    """The handler cancelled its own job, for a reason if it named one."""

    reason: str | None = None


def after_return(delivery: Delivery, result: bytes | None) -> Ending:
    """How an execution ended whose handler returned.

    A handler that looked, was told to stop and then returned did not finish its work: on shutdown the job
    goes back. After a cancel it goes back only without a result, and the store makes it a cancelled job. The
    result of a thread counts after its timeout too, unless it was told to stop and has none.
    """
    if delivery.stop is Stop.TIMEOUT:
        is_done = delivery.runs_in_thread and not (delivery.saw_stop and result in (None, b"null"))
        return Returned(result) if is_done else timed_out(delivery.job)
    if delivery.saw_stop and (
        delivery.stop is Stop.SHUTDOWN or (delivery.cancel_requested and result in (None, b"null"))
    ):
        return Interrupted()
    return Returned(result)


def after_error(delivery: Delivery, error: BaseException) -> Ending | Withdrawn:
    """How an execution ended that raised."""
    if delivery.stop is Stop.TIMEOUT:
        return timed_out(delivery.job, error)
    if isinstance(error, signals.Signal):
        return after_signal(error)
    if (delivery.stop is not None or delivery.cancel_requested) and (
        delivery.saw_stop or not delivery.runs_in_thread
    ):
        # Whatever a handler makes of being told to stop, it is not the job's own fault.
        return Interrupted()
    if isinstance(error, SoftTimeoutError):
        return Raised(error_text(error), decide.TIMEOUT)
    if isinstance(error, HandlerError):
        return Raised(error_text(error), error.reason)
    # A cancel that the worker did not ask for is an error like any other.
    return Raised(error_text(error))


def timed_out(job: Claimed, error: BaseException | None = None) -> Raised:
    """The execution took longer than the job allows; a process that was killed for it may have said more."""
    seconds = job.options.timeout_ms / 1000
    text = f"TimeoutError: the execution took longer than {seconds:g} s"
    if isinstance(error, ProcessDiedError):
        text = f"{text}\n\n{error.text}"
    return Raised(text, decide.TIMEOUT)


def after_signal(signal: signals.Signal) -> Ending | Withdrawn:
    """What the handler's word means."""
    try:
        match signal:
            case signals.Retry():
                delay = getattr(signal, "after", None)
                after = None if delay is None else _delay_ms("retry.after", delay)
                return Raised(error_text(signal), after_ms=after)
            case signals.Snooze():
                return Postponed(_delay_ms("snooze", getattr(signal, "seconds", None)))
            case signals.Fail():
                return RaisedFail(_reason(signal))
            case signals.Cancel():
                return Withdrawn(_reason(signal))
    except OptionError as error:
        return Raised(error_text(error))
    return Raised(error_text(signal))


def _reason(signal: signals.Fail | signals.Cancel) -> str | None:
    # Subclasses need not call their base: then the signal itself is the reason.
    reason: object = getattr(signal, "reason", signal)
    if reason is None:
        return None
    return (_headline(reason) if isinstance(reason, BaseException) else text_of(reason)) or None


def _delay_ms(field: str, seconds: object) -> int:
    # Comparisons with NaN are false, so it is refused as well.
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not (0 <= seconds < 1e9):
        raise OptionError(field, seconds, f"seconds from 0 to {MAX_DELAY_MS // 1000}")
    return decide.check_delay_ms(field, round(seconds * 1000))


def error_text(error: BaseException) -> str:
    """`Type: message`, then the traceback from the handler's own code on."""
    if isinstance(error, HandlerError | TracedRetry):
        return error.text
    first = _headline(error)
    try:
        told = "".join(traceback.format_exception(type(error), error, _own_frames(error.__traceback__)))
    except BaseException:  # noqa: BLE001 (as in `text_of`)
        return first
    return f"{first}\n\n{told.rstrip()}"


def _headline(error: BaseException) -> str:
    """`Type: message`."""
    kind, message = type(error).__qualname__, text_of(error)
    return f"{kind}: {message}" if message else kind


def text_of(value: object) -> str:
    """Its text, whatever the user's code makes of being asked for it."""
    try:
        return str(value)
    except BaseException as broken:  # noqa: BLE001 (the user's code: whatever it raises is not the worker's)
        return f"(its text cannot be made: {type(broken).__qualname__})"


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Without the worker's frames at the top, which say nothing about the handler."""
    first = frames
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next
    return first if frames is None else frames
