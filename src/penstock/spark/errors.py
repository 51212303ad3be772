"""Errors of the data sources, the sink and the tables on Spark."""

from penstock.core.errors import PenstockError


class BadRowError(PenstockError):
    """A row of a DataFrame cannot be a job, and no quarantine takes it."""


class TableError(PenstockError):
    """A table of a lake cannot be read or written: it is of another lake or program, damaged, or too old."""
