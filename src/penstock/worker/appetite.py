"""How many jobs a worker asks for in one claim."""

from penstock.stores.bounds import CHUNK_JOBS


class Appetite:
    """Half as many after an answer that took too long, for jobs may be large; then slowly more again.

    From a server for half of the slots: while these jobs run here, it works on the next. But a server that is
    at work for other workers has no pauses to fill: then for all slots, which takes it fewer calls.
    """

    def __init__(self, slots: int, *, is_server: bool) -> None:
        self._all = min(CHUNK_JOBS, slots)
        self._half = min(CHUNK_JOBS, -(-slots // 2)) if is_server else self._all
        self._limit = self._all
        self._answered = float("-inf")
        self.is_kept_waiting = False
        """The answers to its claims find this worker idle, for the server works for others."""

    @property
    def limit(self) -> int:
        """How many to ask for at most."""
        return min(self._limit, self._all if self.is_kept_waiting else self._half)

    def answered(self, sent: float, now: float, *, waits_for_others: bool) -> None:
        """A claim was answered: by a server at work for others, to a worker with nothing to do, or not so."""
        ran, self._answered = sent - self._answered, now
        self.is_kept_waiting = waits_for_others and now - sent > ran

    def shrink(self, asked: int) -> None:
        """A claim for so many was not answered in time."""
        self._limit = max(1, asked // 2)

    def grow(self, asked: int) -> None:
        """A claim brought as many as it asked for.

        By one, and from what was tried: a step back costs an answer timeout, and its jobs are given back.
        """
        if asked >= self._limit:
            self._limit = min(self._all, asked + 1)
