"""The audit: the promises of the queue, proved or broken by tables of its events."""

from penstock.spark.audit.covered import COVERED
from penstock.spark.audit.judge import audit
from penstock.spark.audit.since_last import Proofs, audit_since
from penstock.spark.audit.verdict import Verdict

__all__ = ["COVERED", "Proofs", "Verdict", "audit", "audit_since"]
