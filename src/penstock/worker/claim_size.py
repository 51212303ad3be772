"""How many jobs a worker asks for in one claim."""

from penstock.stores.bounds import CHUNK_JOBS


class ClaimSize:
    """The limit of the next claim: half as many after an answer that took too long, then slowly more again.

    A server is asked for half of the slots at most, so that it works on the next jobs while these run.
    """

    def __init__(self, slots: int, *, is_server: bool) -> None:
        self._most = min(CHUNK_JOBS, -(-slots // 2) if is_server else slots)
        self.limit = self._most

    def shrink(self, asked: int) -> None:
        """Ask for half as many: a claim for `asked` jobs was not answered in time."""
        self.limit = max(1, asked // 2)

    def grow(self, asked: int) -> None:
        """Ask for one more: a claim brought all the `asked` jobs.

        Only by one, and only from what was tried, because a step back costs an answer timeout.
        """
        if asked >= self.limit:
            self.limit = min(self._most, asked + 1)
