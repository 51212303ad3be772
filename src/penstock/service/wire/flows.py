"""Flows: jobs that wait for jobs, named within the request."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.flows import ChildPolicy
from penstock.core.states import State
from penstock.service.wire.jobs import Name, Wish


class FlowJob(Wish, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One job of a flow. `after` has the names of those that it waits for."""

    name: Name
    queue: Name
    after: Annotated[tuple[Name, ...], Meta(max_length=1_000)] = ()
    child_policy: ChildPolicy = ChildPolicy.FAIL
    """What it means when one of them ends without success: fail too, ignore it, or wait for its redrive."""


class FlowWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs that are taken in as a whole, or not at all. `id` is that of the last one, if it is chosen."""

    jobs: Annotated[list[FlowJob], Meta(min_length=1, max_length=1_000)]
    id: Name | None = None


class FlowMade(msgspec.Struct, frozen=True):
    """Where each job is, by its name."""

    jobs: dict[str, "Place"]


class Place(msgspec.Struct, frozen=True):
    """A job by its queue and id."""

    queue: str
    id: str


class ChildView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that another waits or waited for. `state` is how it ended, once it has."""

    queue: str
    id: str
    done: bool
    state: State | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ChildList(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some children, in the order they were named; `next` is the `after` of the next page."""

    children: list[ChildView]
    next: int | None = None


class FlowCancelled(msgspec.Struct, frozen=True):
    """How many were cancelled or asked to stop."""

    count: int
