"""Processes that die whole: a keeper outside, and nothing of the tree left when the keeper has ended."""


def enter() -> str:
    """Go on in a tree of processes of its own; call it after a fork, with one thread.

    Returns in a new process. The caller stays behind as its keeper, passes SIGTERM and the like on, and ends
    the way the new process ended, after all that it started have ended. The answer names the means.
    """
    raise NotImplementedError


def kill(pid: int) -> None:
    """Kill a keeper's whole tree; once `waitpid(pid)` answers, none of it is left."""
    raise NotImplementedError
