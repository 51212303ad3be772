"""Filters that say which jobs a request lists or changes."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.client.job_filter import JobFilter
from penstock.client.where import MAX_LENGTH, Where
from penstock.core.errors import OptionError
from penstock.core.states import State
from penstock.service.problems import BadRequestError, fault_of
from penstock.service.wire.jobs import Key, Moment, Name

WHERE_SECONDS: Final = 0.2
"""Seconds of processor time that a condition may take for a page of jobs."""
Text = Annotated[str, Meta(max_length=200)]
Condition = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_LENGTH,
        description="An SQL condition over the columns of a job, such as error like 'Timeout%'",
    ),
]
Since = Annotated[
    Moment, Meta(description="The earliest enqueue, or ending where only ended states are asked for")
]


class JobMatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the jobs that match every given field."""

    task: Name | None = None
    key: Key | None = None
    since: Since | None = None
    reason: Text | None = None
    fingerprint: Text | None = None
    where: Condition | None = None

    def filter(self, states: frozenset[State], *, is_query: bool = False) -> JobFilter:
        """The filter of these fields; BadRequestError for an invalid condition."""
        return JobFilter(
            states=states,
            task=self.task,
            key=self.key,
            since=None if self.since is None else int(self.since.timestamp() * 1000),
            reason=self.reason,
            fingerprint=self.fingerprint,
            where=None if self.where is None else _condition(self.where, is_query=is_query),
        )


class JobSelection(JobMatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the jobs to change: those with these ids, and among them those that match every given field."""

    ids: Annotated[list[Name], Meta(min_length=1, max_length=1_000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """The most jobs to change, the oldest first."""


class DeadLetterSelection(JobSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the dead letters to change."""


class JobStateSelection(JobSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the jobs to change among those in some states."""

    states: Annotated[list[State], Meta(min_length=1)] | None = None


def _condition(text: str, *, is_query: bool) -> Where:
    try:
        return Where(text, max_seconds=WHERE_SECONDS)
    except OptionError as error:
        fault = fault_of(error)
        place: dict[str, Any] = {"parameter": "where", "pointer": None} if is_query else {}
        raise BadRequestError(msgspec.structs.replace(fault, **place)) from None
