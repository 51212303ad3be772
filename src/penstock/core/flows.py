"""Jobs that wait for other jobs: references, endings, and the shape of a graph."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from penstock.core.errors import FlowError
from penstock.core.states import State


class JobRef(msgspec.Struct, frozen=True, array_like=True):
    """A job of the same tenant, in any of its queues."""

    queue: str
    id: str

    def __str__(self) -> str:
        return f"{self.queue}/{self.id}"


class ChildPolicy(StrEnum):
    """What a child that ends without success means for the parent that waits for it."""

    FAIL = "fail"
    """The parent fails too, without running."""
    IGNORE = "ignore"
    """It counts as ended; the parent can see how."""
    WAIT = "wait"
    """The parent waits for its redrive."""


class ChildEnding(msgspec.Struct, frozen=True):
    """A child ended, as told to its parent. `state` is None when the child was deleted."""

    parent: str
    child: JobRef
    state: State | None
    result: bytes | None = None


class Child(msgspec.Struct, frozen=True):
    """A child as its parent knows it; `is_done` once its ending counts."""

    ref: JobRef
    is_done: bool = False
    state: State | None = None
    result: bytes | None = None


class Verdict(StrEnum):
    """What a child's ending means for its parent."""

    COUNTS = "counts"
    WAITS = "waits"
    FAILS = "fails"


def verdict(state: State | None, policy: ChildPolicy) -> Verdict:
    """What a child that ended so means under the parent's policy."""
    if state is State.COMPLETED or policy is ChildPolicy.IGNORE:
        return Verdict.COUNTS
    # A child that is gone will never be redriven: there is nothing to wait for.
    waits = policy is ChildPolicy.WAIT and state is not None
    return Verdict.WAITS if waits else Verdict.FAILS


def in_order(children: Mapping[str, Sequence[str]]) -> list[str]:
    """Names so that each comes after all it waits for; FlowError on a cycle. Takes time by the edges."""
    waiting = {name: len(set(needs)) for name, needs in children.items()}
    parents: dict[str, list[str]] = {}
    for name, needs in children.items():
        for need in set(needs):
            if need not in children:
                raise FlowError(f"{name} waits for {need}, which is not part of the flow")
            parents.setdefault(need, []).append(name)
    ready = [name for name, count in waiting.items() if count == 0]
    ordered: list[str] = []
    while ready:
        name = ready.pop()
        ordered.append(name)
        for parent in parents.get(name, ()):
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    if len(ordered) < len(children):
        stuck = sorted(name for name, count in waiting.items() if count)
        raise FlowError(f"the flow has a cycle among {', '.join(stuck[:5])}")
    return ordered
