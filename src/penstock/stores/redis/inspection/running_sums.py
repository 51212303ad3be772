"""Which jobs may have records and indexes that disagree, told by sums of hashes in a few bytes per job."""

from array import array
from collections.abc import Hashable, Iterator, Set
from typing import Final

_JOBS_PER_SUM: Final = 4
"""Between this number of jobs and half of it share a sum, and come under suspicion together."""
_MASK: Final = (1 << 64) - 1

Sums = Set[int]
"""Numbers of sums, each of which stands for a few jobs."""


class RunningSums:
    """One sum per few jobs: of what their records want in indexes, less what the indexes have.

    A sum that is not zero proves a difference. Python keys its hashes of bytes: two differences cancel each
    other out with a chance of one in 2^64.
    """

    def __init__(self, jobs: int) -> None:
        self._sums = array("Q", bytes(8 << max(jobs // _JOBS_PER_SUM, 1).bit_length()))
        self._last = len(self._sums) - 1
        self._marked: set[int] = set()

    def want(self, job: bytes, *entries: Hashable) -> None:
        """The job's record wants these entries in indexes."""
        at = hash(job) & self._last
        self._sums[at] = (self._sums[at] + sum(map(hash, entries))) & _MASK

    def find(self, job: bytes, entry: Hashable) -> None:
        """An index has an entry of the job."""
        at = hash(job) & self._last
        self._sums[at] = (self._sums[at] - hash(entry)) & _MASK

    def mark(self, job: bytes) -> None:
        """The job is under suspicion whatever its indexes have."""
        self._marked.add(hash(job) & self._last)

    def suspects(self, most: int) -> Iterator[Sums]:
        """All sums that show a difference, in sets that stand for about so many jobs at most."""
        group: set[int] = set()
        for at, total in enumerate(self._sums):
            if total or at in self._marked:
                group.add(at)
                if len(group) * _JOBS_PER_SUM >= most:
                    yield group
                    group = set()
        if group:
            yield group

    def is_among(self, job: bytes, sums: Sums) -> bool:
        """True when the job is one of those that the sums stand for."""
        return hash(job) & self._last in sums
