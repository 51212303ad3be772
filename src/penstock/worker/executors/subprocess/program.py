"""From a forked process to the program of a job."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from penstock.core.errors import PenstockError
from penstock.sandbox.confine import Plan

CANNOT_RUN: Final = 127


def become(program: Sequence[str], fds: Sequence[int], plan: Plan | None) -> None:
    """Run the program instead of this process, with `fds` as its input, output and errors."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    # Python ignores these, and what is ignored stays so in a program.
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(each, signal.SIG_DFL)
    try:
        if plan is not None:
            plan.apply([0])
        os.execvp(program[0], list(program))  # noqa: S606 (no shell is what is wanted)
    except (OSError, PenstockError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        os.write(2, f"cannot run {program[0]}: {why}\n".encode())
    sys.exit(CANNOT_RUN)
