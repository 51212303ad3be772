"""The rules on the events of one job: what is known of the job, and what each next event must be.

The one place where these rules are written. They are a fold over the events of a job in their order:
`advance` for an event of its own, `remove` for one that took it away with others, `lose` for one that cannot
be read. The checker folds the jobs of a log side by side, the audit on Spark job after job.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.core.clocks import has_ended
from penstock.core.decide import NO_HANDLER
from penstock.core.events import COUNTED_MOVES, LEASE_MOVES, Event
from penstock.core.history.rules import Rule
from penstock.core.moves import Move
from penstock.core.states import ENDED, State
from penstock.core.transitions import TABLE

Tell = Callable[[Rule, Event, str], None]
"""Takes a breach: the rule, the event that shows it, and how."""


class Life(msgspec.Struct, gc=False, array_like=True):
    """What is known of a job after its newest event; None is what is not known.

    `fence` is 0 before the first claim. What is unknown is taken from the events that follow.
    """

    state: State | None
    version: int
    drive: int
    delivery: int = 0
    failures: int = 0
    fence: int | None = 0
    worker: str | None = None
    deadline: int | None = None
    lease_ms: int | None = None
    visible_at: int | None = None
    max_attempts: int | None = None
    is_cancelling: bool | None = False
    idempotency_key: str | None = None
    """The key that it holds, until its ending."""
    since: int = 0
    """The number of its enqueue; 0 where that is not known."""
    tier: int | None = None
    """The tier it waits in, while its turn can be told."""
    place: int = 0
    """Its place in that tier's line."""
    key: str | None = None
    is_leased: bool = False
    """True while its lease is counted against limits."""
    is_unblocked: bool = False
    """True when it was let go in this drive."""
    was_executed: bool = False
    """True when a handler recorded an execution under the newest lease."""


class Totals(msgspec.Struct):
    """What the events of jobs add up to."""

    events: int = 0
    unknown: int = 0
    jobs: int = 0
    deleted: int = 0
    removed: int = 0
    moves: Counter[Move] = msgspec.field(default_factory=Counter)
    ends: Counter[State] = msgspec.field(default_factory=Counter)


def advance(life: Life | None, event: Event, tell: Tell, totals: Totals, *, is_cut: bool) -> Life | None:
    """Hold the next event of a job against what is known of it; what is known then, None once it is gone.

    The life is changed in place, but for an enqueue, which begins another one. Where the log `is_cut` a job
    may begin with any event.
    """
    totals.moves[event.move] += 1
    if event.move is Move.ENQUEUE:
        if life is not None:
            tell(Rule.ID_TAKEN, event, f"enqueued again while it was {life.state}")
        totals.jobs += 1
        _check_birth(event, tell)
        return _born(event)
    if life is None:
        if not is_cut:
            tell(Rule.NO_ENQUEUE, event, f"{event.move} of a job that was never enqueued")
        totals.jobs += 1
        life = _met(event)
    before = life.state
    _follow(life, event, tell)
    if event.move in REMOVALS:
        life.state = event.source if before is None else before
        _count_removal(life, totals)
        return None
    if before in ENDED:
        totals.ends[before] -= 1
    if event.target in ENDED:
        totals.ends[event.target] += 1
    return life


def remove(life: Life | None, move: Move, totals: Totals, *, is_cut: bool) -> tuple[Rule, str] | None:
    """Take a job out with others; what is wrong with that, if anything."""
    if life is None:
        return None if is_cut else (Rule.NO_ENQUEUE, f"{move} of a job that is not there")
    _count_removal(life, totals)
    sources = TABLE[move].sources if move in REMOVALS else frozenset[State]()
    if life.state is None or life.state in sources:
        return None
    return Rule.TABLE, f"{move} of a job that is {life.state}"


def lose(life: Life, version: int | None, totals: Totals) -> None:
    """After an event that cannot be read nothing is known of the job but its version."""
    if life.state in ENDED:
        totals.ends[life.state] -= 1
    life.version = life.version + 1 if version is None else version
    life.state = life.fence = life.deadline = life.lease_ms = life.visible_at = life.is_cancelling = None


def _count_removal(life: Life, totals: Totals) -> None:
    if life.state in ENDED:
        totals.removed += 1
    else:
        totals.deleted += 1


def _born(event: Event) -> Life:
    """The life that an enqueue begins."""
    return Life(
        state=event.target,
        version=event.version or 1,
        drive=event.drive or 1,
        visible_at=event.visible_at,
        max_attempts=event.max_attempts,
        idempotency_key=event.idempotency_key,
        since=event.seq,
        key=event.key,
    )


def _met(event: Event) -> Life:
    """A life whose earlier events are not at hand."""
    redrives = 1 if event.move is Move.REDRIVE else 0
    return Life(
        state=None,
        version=(event.version or 1) - 1,
        drive=(event.drive or 1) - redrives,
        fence=None,
        is_cancelling=None,
        key=event.key,
    )


def _check_birth(event: Event, tell: Tell) -> None:
    """An enqueue comes from nothing, as version 1 of drive 1."""
    if event.version != 1:
        tell(Rule.VERSION, event, f"begins with version {event.version}")
    if event.drive != 1:
        tell(Rule.DRIVE, event, f"begins with drive {event.drive}")
    if (event.move, event.source, event.target) not in LEGAL:
        tell(Rule.TABLE, event, _path(event))


def _follow(life: Life, event: Event, tell: Tell) -> None:
    """Hold the event of a known job against what came before it, and take it over."""
    move, target = event.move, event.target
    version, drive = life.version + 1, life.drive
    if event.version != version:
        tell(Rule.VERSION, event, f"version {event.version} came where {version} was next")
        # A version from the past does not set the count back: what follows it would look wrong as well.
        version = max(event.version or version, life.version)
    if move is Move.REDRIVE:
        drive += 1
    if event.drive != drive:
        tell(Rule.DRIVE, event, f"{move} in drive {event.drive}, not {drive}")
        drive = event.drive or drive
    _check_state(life, event, tell)
    if move is Move.CLAIM:
        _claim(life, event, tell)
    elif move in LEASE_MOVES:
        _use_lease(life, event, tell)
    elif move is Move.PROMOTE:
        if life.visible_at is not None and event.at < life.visible_at:
            tell(Rule.EARLY_PROMOTE, event, f"promoted {life.visible_at - event.at} ms before its time")
    elif move is Move.CANCEL:
        life.is_cancelling = target is State.ACTIVE
    elif move is Move.UNBLOCK:
        life.is_unblocked = True
    elif move is Move.REDRIVE:
        life.is_cancelling = life.is_unblocked = False
        life.failures = 0
    life.version, life.drive, life.state, life.visible_at = version, drive, target, event.visible_at


def _check_state(life: Life, event: Event, tell: Tell) -> None:
    before, move, source, target = life.state, event.move, event.source, event.target
    if before is not source and before is not None:
        if move is Move.UNBLOCK and life.is_unblocked:
            tell(Rule.UNBLOCKED_TWICE, event, f"unblocked again, when it was {before}")
        elif before in ENDED and move not in AFTER_ENDING:
            rule = Rule.ENDED_TWICE if target in ENDED else Rule.AFTER_END
            tell(rule, event, f"{move} of a job that is {before}")
        elif before is State.ACTIVE and move is Move.CLAIM:
            tell(Rule.OVERLAP, event, f"claimed by {event.worker} while {life.worker} held its lease")
        elif source is State.ACTIVE and move in LEASE_MOVES:
            tell(Rule.STALE, event, f"{move} of a job that is {before}, under no lease")
        else:
            tell(Rule.FROM, event, f"{move} from {source} of a job that is {before}")
    if (move, source, target) in LEGAL:
        if life.is_cancelling and TABLE[move].cancels:
            tell(Rule.CANCEL_IGNORED, event, f"{move} led to {target} although a cancel was asked for")
    elif target is not State.CANCELLED or not TABLE[move].cancels or life.is_cancelling is False:
        tell(Rule.TABLE, event, _path(event))


def _claim(life: Life, event: Event, tell: Tell) -> None:
    attempt = event.attempt
    if life.fence is not None:
        if event.delivery != life.delivery + 1:
            tell(Rule.DELIVERY, event, f"delivery {event.delivery} came after {life.delivery}")
        if event.fence is None or event.fence <= life.fence:
            tell(Rule.FENCE, event, f"fence {event.fence} came after {life.fence}")
        if attempt != life.failures + 1:
            tell(Rule.ATTEMPT, event, f"attempt {attempt} came after {life.failures} failures")
    if attempt is not None and life.max_attempts is not None and attempt > life.max_attempts:
        tell(Rule.ATTEMPTS, event, f"attempt {attempt} of {life.max_attempts} began")
    life.delivery = event.delivery or life.delivery + 1
    life.fence = event.fence
    life.failures = life.failures if attempt is None else attempt - 1
    life.worker = event.worker
    life.deadline = event.deadline
    life.lease_ms = None if event.deadline is None else event.deadline - event.at
    life.was_executed = False


def _use_lease(life: Life, event: Event, tell: Tell) -> None:
    move, target = event.move, event.target
    if life.fence is None:
        life.fence = event.fence
        life.delivery = event.delivery or life.delivery
        life.worker = event.worker
        life.failures = life.failures if event.attempt is None else event.attempt - 1
    elif life.state is State.ACTIVE and not _is_current(life, event):
        held = _lease(life.delivery, life.fence, life.worker)
        tell(
            Rule.STALE,
            event,
            f"{move} under {_lease(event.delivery, event.fence, event.worker)}; held: {held}",
        )
    attempt = life.failures + 1
    if event.attempt != attempt:
        tell(Rule.ATTEMPT, event, f"{move} as attempt {event.attempt}, after {life.failures} failures")
    if move is Move.EXPIRE:
        # Renewals write no event: the newest deadline stands with the expiry, unless that is an old one.
        deadline = life.deadline if event.deadline is None else event.deadline
        if deadline is not None and not has_ended(deadline, life.lease_ms, event.at):
            tell(Rule.EARLY_EXPIRE, event, f"expired {deadline - event.at} ms before its deadline")
    if move in COUNTED_MOVES:
        life.failures = attempt
        if life.max_attempts is None:
            return
        if target is State.DEAD and attempt < life.max_attempts and event.reason != NO_HANDLER:
            tell(Rule.EARLY_BURY, event, f"dead after {attempt} of {life.max_attempts} attempts")
        elif target in TRIES_AGAIN and attempt >= life.max_attempts:
            tell(Rule.EXHAUSTED, event, f"{target} after {attempt} of {life.max_attempts} attempts")


def _is_current(life: Life, event: Event) -> bool:
    return event.fence == life.fence and event.delivery == life.delivery and event.worker == life.worker


def _lease(delivery: int | None, fence: int | None, worker: str | None) -> str:
    return f"delivery {delivery}, fence {fence}, worker {worker}"


def _path(event: Event) -> str:
    return f"{event.move} led from {event.source or 'nothing'} to {event.target or 'gone'}"


def _legal() -> frozenset[tuple[Move, State | None, State | None]]:
    """Each way through the table without a cancel having been asked for."""
    paths: set[tuple[Move, State | None, State | None]] = set()
    for row in TABLE.values():
        paths |= {(row.move, source, to) for source in row.sources or {None} for to in row.targets or (None,)}
    return frozenset(
        (move, source, to)
        for move, source, to in paths
        if move is not Move.CANCEL or (source is State.ACTIVE) == (to is State.ACTIVE)
    )


LEGAL: Final = _legal()
"""Every (move, from, to) that the table has, where no cancel was asked for."""
AFTER_ENDING: Final = frozenset({Move.REDRIVE, Move.DELETE, Move.PRUNE})
REMOVALS: Final = frozenset({Move.DELETE, Move.PRUNE})
TRIES_AGAIN: Final = frozenset({State.DELAYED, State.PENDING})
