"""The audit: the promises of the queue, proved or broken by tables of its events.

The rules on one job are those of `core/history/life.py`; this package finds the jobs that need them event by
event, and has the rules across jobs as SQL. It can pass a log only if the checker would. Begin reading in
`judge.py`, then `running.py`, which audits a store.
"""

from penstock.spark.audit.covered import COVERED
from penstock.spark.audit.judge import audit
from penstock.spark.audit.since_last import Proofs, audit_since
from penstock.spark.audit.verdict import Verdict

__all__ = ["COVERED", "Proofs", "Verdict", "audit", "audit_since"]
