"""What is measured: one case per row of the report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.spawn import Figures

OURS: Final = "Penstock"


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration of one side. `measure` gets an empty folder and uses fresh processes."""

    section: str
    durability: str
    side: str
    label: str
    measure: Callable[[Path], Figures]
    units: dict[str, str]


@dataclass(frozen=True, slots=True)
class Section:
    """Cases that are measured in turn, so that what disturbs the machine meets all of them."""

    name: str
    title: str
    cases: Callable[[Any], Iterator[list[Case]]]
