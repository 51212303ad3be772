"""The rules that the audit holds a log to."""

from typing import Final

from penstock.core.history.rules import Rule

OF_ORDER: Final = frozenset({Rule.SEQ_ORDER, Rule.FIFO, Rule.TIER, Rule.KEY_FIFO, Rule.TURN})
"""Rules on the order of a whole queue: who came before whom decides, event by event."""
OF_OTHERS: Final = frozenset(
    {Rule.LOST, Rule.KEY_OTHER, Rule.NO_CLAIM, Rule.NO_EXECUTION, Rule.EXECUTED_TWICE}
)
"""Rules on what producers and handlers wrote down themselves."""
BY_NAME: Final = {str(rule): rule for rule in Rule}
COVERED: Final = frozenset(Rule) - OF_ORDER - OF_OTHERS
"""What `penstock.spark.audit` looks at; `penstock.core.history` has the others too."""
