"""What an idle worker costs, seen from inside its process."""

import os
import resource
import sys
import time
from pathlib import Path


class IdleCost:
    """Memory at the end, and processor time from the making of this object to `figures`."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._busy = time.process_time()

    def figures(self) -> dict[str, float]:
        """Resident memory in MiB, and the share of one core in percent."""
        wall = time.perf_counter() - self._wall
        return {"rss": _resident_mib(), "cpu": (time.process_time() - self._busy) / wall * 100}


def _resident_mib() -> float:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    # Elsewhere only the highest value so far is at hand, which for an idle worker is close.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
