"""One store's benchmark: what it measures, with how much, beside whom, and which goals it has."""

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.cases import Section
from benchmarks.results import Row, Verdict


class Plan(Protocol):
    """How much is measured; the rest of it is between a suite and its sections."""

    @property
    def rounds(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can begin. `facts` say with what it was made, in the words of the report."""

    plan: Plan
    facts: dict[str, str]


@dataclass(frozen=True, slots=True)
class Suite:
    """`benchmarks.<name>.suite` has one as `SUITE`.

    `options` adds arguments of its own; `prepare` brings up what lasts for the whole run. With `has_ratios`
    every row of a peer says how Penstock stands to it.
    """

    name: str
    title: str
    sections: Sequence[Section]
    prepare: Callable[[argparse.Namespace], AbstractContextManager[Prepared]]
    verdicts: Callable[[Sequence[Row]], list[Verdict]]
    options: Callable[[argparse.ArgumentParser], Any] = lambda parser: None
    has_ratios: bool = False
