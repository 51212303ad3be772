"""Proof from a history: every promise of the queue, checked against its events and others' records."""

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
