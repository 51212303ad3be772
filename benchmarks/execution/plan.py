"""How much is measured: enough to mean something, or just enough to see that it runs."""

from dataclasses import replace
from typing import Final

from benchmarks.execution.sides import SIDES
from benchmarks.redis import plan

FULL: Final = replace(plan.FULL, sides=SIDES, extras=())
QUICK: Final = replace(plan.QUICK, sides=SIDES, extras=())
