"""Flows: jobs that wait for other jobs, which a request names."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.flows import ChildPolicy
from penstock.core.states import State
from penstock.service.wire.jobs import JobFields, Name


class FlowJobCreate(JobFields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One job of a flow. `after` lists the names of the jobs that it waits for."""

    name: Name
    queue: Name
    after: Annotated[tuple[Name, ...], Meta(max_length=1_000)] = ()
    child_policy: ChildPolicy = ChildPolicy.FAIL
    """Whether the job fails too when one of those jobs fails, ignores it, or waits for its redrive."""


class FlowCreate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to create, all of them or none. `id` chooses the id of the job that comes last."""

    jobs: Annotated[list[FlowJobCreate], Meta(min_length=1, max_length=1_000)]
    id: Name | None = None


class FlowCreated(msgspec.Struct, frozen=True):
    """Queue and id of each created job, by its name in the request."""

    jobs: dict[str, "FlowJobView"]


class FlowJobView(msgspec.Struct, frozen=True):
    """Queue and id of a job of a flow."""

    queue: str
    id: str


class ChildView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A child job, which its parent waits or waited for. `state` is set once the child has ended."""

    queue: str
    id: str
    done: bool
    state: State | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ChildList(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of children, in the order in which the parent named them.

    `next` is the `after` of the next page.
    """

    children: list[ChildView]
    next: int | None = None


class FlowCancelled(msgspec.Struct, frozen=True):
    """The number of jobs that were cancelled or asked to stop."""

    count: int
