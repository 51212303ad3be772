"""What to say of a process that ended before its handler did."""

import signal

from penstock.core import decide
from penstock.core.errors import ProcessDiedError
from penstock.worker.executors.process.host import Exit


def died(how: Exit, tail: str, broken: str | None = None, *, is_stopped: bool) -> ProcessDiedError:
    """With a reason such as `KILLED: SIGSEGV`, and the last that the process wrote.

    `is_stopped` says that the worker had begun to end it.
    """
    if broken is not None:
        return _error(f"the process {broken}", decide.PROTOCOL, tail)
    if how.error is not None and how.code == -1:
        return _error(how.error, decide.NO_PROCESS, tail)
    if how.code >= 0:
        return _error(f"the process ended with exit code {how.code}", f"{decide.EXITED}: {how.code}", tail)
    name = signal_name(-how.code)
    why = f" ({how.error})" if how.error else ""
    if how.code == -signal.SIGKILL and not why:
        why = " from its worker" if is_stopped else ", which also the kernel does when memory is short"
    return _error(f"the process was killed by {name}{why}", f"{decide.KILLED}: {name}", tail)


def signal_name(number: int) -> str:
    """`SIGSEGV`, or `signal 64` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _error(message: str, reason: str, tail: str) -> ProcessDiedError:
    text = f"ProcessDiedError: {message}"
    if tail:
        text = f"{text}\n\nThe last that it wrote:\n{tail}"
    return ProcessDiedError("ProcessDiedError", message, text, reason)
