"""Which tests stay in one process when several share a run: those that share what takes long to make."""

from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling

_ROOT: Final = Path(__file__).parents[2]
_SESSION: Final = ("spark: SparkSession", 'usefixtures("spark")')
"""How a test asks for the session; each process that has one starts a Java machine."""


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out groups, the largest first, then the other tests one by one."""

    def _split_scope(self, nodeid: str) -> str:
        # Marks do not reach this process, only names do.
        return _group_of(nodeid.partition("::")[0]) or nodeid


@cache
def _group_of(module: str) -> str | None:
    text = (_ROOT / module).read_text("utf-8")
    if module.startswith("tests/spark/") and any(said in text for said in _SESSION):
        return "spark"
    return module if 'scope="module"' in text else None
