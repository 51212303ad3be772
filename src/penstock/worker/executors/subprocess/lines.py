"""What a program is told and what it may say: one JSON object per line."""

from typing import Any, Final

import msgspec

from penstock.core.payload import decode_json
from penstock.core.retry import MAX_DELAY_MS
from penstock.tasks.context import JobContext
from penstock.tasks.signals import Cancel, Fail, Signal, Snooze
from penstock.worker.endings import TracedRetry

_ENCODER: Final = msgspec.json.Encoder()
STOP: Final = b'{"stop":true}\n'


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of output. Exactly one of its members is there."""

    progress: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    retry: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds until the next attempt."""
    snooze: float | msgspec.UnsetType = msgspec.UNSET
    fail: str | msgspec.UnsetType = msgspec.UNSET
    cancel: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        said = [name for name in self.__struct_fields__ if getattr(self, name) is not msgspec.UNSET]
        if len(said) != 1:
            raise ValueError(f"found {said or 'nothing'}, wanted one of {', '.join(self.__struct_fields__)}")
        for name in ("retry", "snooze"):
            seconds = getattr(self, name)
            if seconds is not msgspec.UNSET and not 0 <= seconds <= MAX_DELAY_MS / 1000:
                raise ValueError(f"{name}: wanted seconds from 0 to {MAX_DELAY_MS // 1000}")


_DECODER: Final = msgspec.json.Decoder(Said)


def job_line(ctx: JobContext, payload: bytes) -> bytes:
    """The first line of a program's input: the job, with its payload."""
    job: dict[str, Any] = {
        "id": ctx.id,
        "task": ctx.task,
        "queue": ctx.queue,
        "tenant": ctx.tenant,
        "attempt": ctx.attempt,
        "max_attempts": ctx.max_attempts,
        "delivery": ctx.delivery,
        "drive": ctx.drive,
        "fence": ctx.fence,
        "key": ctx.key,
        "enqueued_at": ctx.enqueued_at,
        "deadline": ctx.deadline,
        "headers": ctx.headers,
        # Decoded, for its bytes may hold line breaks.
        "payload": decode_json("payload", payload),
    }
    return _ENCODER.encode(job) + b"\n"


def said(line: bytes) -> Said:
    """What a line says; ValueError when that is nothing."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def signal_of(line: Said) -> Signal | None:
    """What a handler would raise to say the same."""
    if isinstance(line.retry, float):
        message = f"the program asked for another attempt after {line.retry:g} s"
        return TracedRetry(line.retry, message, f"Retry: {message}")
    if isinstance(line.snooze, float):
        return Snooze(line.snooze)
    if isinstance(line.fail, str):
        return Fail(line.fail)
    return Cancel(line.cancel) if isinstance(line.cancel, str) else None
