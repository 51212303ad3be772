"""The checker: compares an event log, and the records of producers and handlers, with every rule.

It reads events only and trusts no store. Its memory is bounded: what it remembers of jobs can spill to a
scratch table. Begin reading in `checker.py`; `life.py` has the rules on one job, which the audit on Spark
uses too, and `rules.py` names every rule.
"""

from penstock.core.history.checker import Checker, check
from penstock.core.history.rules import (
    Breach,
    Declared,
    Executed,
    LiveStates,
    OrderedStates,
    Produced,
    Rule,
    Verdict,
)
from penstock.core.history.scratch import NewTable, ScratchTable, SpillingMap

__all__ = [
    "Breach",
    "Checker",
    "Declared",
    "Executed",
    "LiveStates",
    "NewTable",
    "OrderedStates",
    "Produced",
    "Rule",
    "ScratchTable",
    "SpillingMap",
    "Verdict",
    "check",
]
