"""Compares running and waiting jobs with a queue's limits, and checks that no key of it is passed over."""

from typing import Final

from penstock.cli.doctor.check import Check
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.limits import STRIDE, Declaration
from penstock.core.moves import Move
from penstock.core.states import WAITING, State
from penstock.explain.job_events import WINDOW
from penstock.explain.job_facts import MOST_KEYS
from penstock.stores.protocol import Store
from penstock.stores.values import KeyInfo, QueueInfo

TOLERATED_TURNS: Final = 3
"""Turns that another key may have beyond its share before the check reports it."""


async def examine_limits(store: Store, info: QueueInfo, counts: dict[State, int]) -> list[Check]:
    """Compare the declared limits of a queue with its jobs; no check for a queue without a declaration."""
    declared = info.declaration
    if declared is None:
        return []
    active, waiting = counts[State.ACTIVE], sum(counts[state] for state in WAITING)
    check = Check("limits", f"{declared.mode}, version {declared.version}", info.queue.name)
    if declared.max_active is not None and active > declared.max_active:
        what = f"{active} jobs run and max_active is {declared.max_active}"
        check.findings.append(what + _lowered(declared))
    if declared.max_length is not None:
        # A longer queue is no fault: retries, releases and flows add jobs beyond the limit.
        check.seen += f", {waiting} of {declared.max_length} wait"
    if not declared.mode.has_keys:
        return [check]
    keys = await store.queues.list_keys(info.queue, MOST_KEYS)
    check.seen += f", {len(keys)} keys"
    check.findings += [
        f"{key.active} jobs of key {key.key!r} run and its limit is {key.limit}" + _lowered(declared)
        for key in keys
        if key.active > key.limit
    ]
    return [check, await _turns(store, info.queue, keys)]


def _lowered(declared: Declaration) -> str:
    if declared.version > 1:
        return f" (version {declared.version} may have lowered the limit: then the number falls as jobs end)"
    return " (unless the limit was lowered while they ran)"


async def _turns(store: Store, ref: QueueRef, keys: list[KeyInfo]) -> Check:
    """Check that no key which could be served was passed over for the turns of other keys."""
    now = await store.clock.now()
    ready = [
        key
        for key in keys
        if key.waiting and key.active < key.limit and (key.held_until is None or key.held_until <= now)
    ]
    check = Check("turns of keys", f"{len(ready)} keys could be served", ref.name)
    oldest, newest = await store.events.event_range(ref)
    events = await store.events.read_events(ref, max(oldest - 1, newest - WINDOW), WINDOW)
    weights = {key.key: key.weight for key in keys}
    for key in ready:
        served = _served_since(events, key.key)
        for other, turns in served.items():
            allowed = 1 + (STRIDE // key.weight - 1) // (STRIDE // weights.get(other, 1))
            if turns >= allowed + TOLERATED_TURNS:
                check.findings.append(
                    f"key {key.key!r} has waiting jobs and a free slot, and was passed over: "
                    f"key {other!r} had {turns} turns since"
                )
                break
    return check


def _served_since(events: list[Event], key: str) -> dict[str, int]:
    """How often each other key was served after the newest event of this key."""
    served: dict[str, int] = {}
    for event in reversed(events):
        if event.key == key or event.jobs is not None:
            break
        if event.move is Move.CLAIM and event.key is not None:
            served[event.key] = served.get(event.key, 0) + 1
    return served
