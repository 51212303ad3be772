"""Processes that die whole: a keeper outside, and nothing of the tree left when the keeper has ended."""

import os
import signal
from contextlib import suppress

from penstock.sandbox.keeper import END, Keeper


def enter() -> None:
    """Go on in a tree of processes of its own; call it after a fork, with one thread.

    Returns in a new process. The caller stays behind as its keeper, passes SIGTERM and the like on, and ends
    the way the new process ended, once all that it started are killed and waited for, daemons included. The
    keeper closes all descriptors and kills its tree when the caller's parent dies.
    """
    keeper = Keeper()
    child = os.fork()
    if child:
        keeper.keep(child)
    keeper.begin()


def kill(pid: int) -> None:
    """Kill the tree of a keeper (of `enter` or of `Plan.apply`); when it can be waited for, none is left."""
    with suppress(ProcessLookupError):
        os.kill(pid, END)
        os.kill(pid, signal.SIGCONT)
