"""Scaling of workers as it goes out: decisions of autoscalers, and how many workers a queue needs."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.scaling import MAX_UNITS, Direction
from penstock.service.wire.jobs import Limit
from penstock.service.wire.times import moment
from penstock.worker.processes.scaling_log import ScalingEntry

Units = Annotated[int, Meta(ge=1, le=MAX_UNITS)]


class WorkerNeedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The slots of one worker, how many waiting jobs a slot may have, and the bounds of the answer."""

    slots: Units = 10
    backlog_per_slot: Units = 10
    min: Annotated[int, Meta(ge=0, le=MAX_UNITS)] = 0
    max: Units = MAX_UNITS


class WorkerNeedView(msgspec.Struct, frozen=True):
    """How many workers a queue needs now: enough for its running jobs and for its backlog."""

    needed: int
    backlog: int
    active: int


class ScalingDecisionListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many decisions to list."""

    limit: Limit = 100


class ScalingDecisionView(msgspec.Struct, frozen=True):
    """A decision of an autoscaler: from how many units to how many, and why."""

    at: datetime
    scaler: str
    unit: str
    direction: Direction
    units: int
    wanted: int
    reason: str


class ScalingDecisionList(msgspec.Struct, frozen=True):
    """Decisions, the newest first."""

    decisions: list[ScalingDecisionView]


def decision_view(entry: ScalingEntry) -> ScalingDecisionView:
    """A decision as it goes out."""
    return ScalingDecisionView(
        moment(entry.at), entry.scaler, entry.unit, entry.direction, entry.units, entry.wanted, entry.reason
    )
