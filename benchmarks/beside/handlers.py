"""What the handlers of every side do: one small write, by which the driver sees what was executed when."""

import os
import time
from typing import Final

URL_VARIABLE: Final = "PENSTOCK_BENCH_URL"
MARKS_VARIABLE: Final = "PENSTOCK_BENCH_MARKS"
URL: Final = os.environ.get(URL_VARIABLE, "redis://127.0.0.1:6379/0")

# Appended to, so that the processes and threads of a worker can share it.
_marks: Final = os.open(os.environ.get(MARKS_VARIABLE, os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def executed() -> None:
    """One byte per job: the size of the file is the count."""
    os.write(_marks, b".")


def waited(sent: int) -> None:
    """One line per job: nanoseconds from before its enqueue to now, by the clock all processes share."""
    os.write(_marks, b"%d\n" % (time.monotonic_ns() - sent))


def stopped() -> None:
    """One line per job that is told to stop: the moment of that, by the clock all processes share."""
    os.write(_marks, b"%d\n" % time.monotonic_ns())
