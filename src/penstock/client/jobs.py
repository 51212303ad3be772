"""From a call to the job that goes into the store."""

import secrets
from typing import Any

from msgspec.structs import replace

from penstock.core.errors import OptionError
from penstock.core.job import NewJob
from penstock.core.limits import Mode
from penstock.core.unique import Unique
from penstock.tasks.call import Call


def new_job(call: Call[Any], job: str, nonce: str | None = None) -> NewJob:
    """The job of a call, with this id unless the call chose one."""
    options = call.options
    new = NewJob(
        id=options.id or job,
        nonce=nonce or secrets.token_hex(8),
        task=call.task,
        payload=call.payload,
        priority=options.tier,
        delay_ms=options.wait_ms,
        run_at=options.run_at,
        idempotency_key=options.idempotency_key,
        key=options.key,
        options=options.policy,
        headers=options.headers,
    )
    kind = options.kind
    if kind is None:
        return new
    # A task's name has neither sign in it: chosen keys and payloads of any two tasks stay apart.
    key = f"{new.task}#{new.digest}" if options.unique_key is None else f"{new.task}={options.unique_key}"
    return replace(new, unique=Unique(key, kind.rule, kind.window_ms))


def check_mode(call: Call[Any], mode: Mode) -> None:
    """OptionError when the queue's jobs need a key and this one has none, or it asks for a priority there."""
    if not mode.has_keys:
        return
    if call.options.key is None:
        raise OptionError("key", None, f"a key: queue {call.queue!r} is {mode}")
    if call.options.priority is not None:
        wanted = f"none: in queue {call.queue!r}, which is {mode}, keys take turns"
        raise OptionError("priority", call.options.priority, wanted)
