"""How many jobs a worker asks for in one claim."""


class Appetite:
    """Half as many after an answer that took too long, for jobs may be large; then slowly more again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = most

    def shrink(self, asked: int) -> None:
        """A claim for so many was not answered in time."""
        self.limit = max(1, asked // 2)

    def grow(self) -> None:
        """A claim brought as many as it asked for.

        By one: a step back costs an answer timeout, and its jobs are given back.
        """
        self.limit = min(self._most, self.limit + 1)
