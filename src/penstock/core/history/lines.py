"""The lines that jobs of one queue wait in, and whether each claim took the one whose turn it was."""

from collections import OrderedDict

from penstock.core.events import Event
from penstock.core.history.life import Life, Tell
from penstock.core.history.rules import Rule
from penstock.core.job import DEFAULT_PRIORITY
from penstock.core.moves import Move
from penstock.core.states import State


class Lines:
    """One line per tier, by arrival. Jobs that are served by key stand in none."""

    def __init__(self) -> None:
        self._tiers: dict[int, OrderedDict[str, Life]] = {}
        self._descending: list[OrderedDict[str, Life]] = []

    def follow(self, job: str, life: Life, event: Event, tell: Tell, *, any_key: bool = False) -> None:
        """Move the job to where the event puts it; jobs with a key too where that is no matter of turns."""
        if life.tier is not None:
            if event.move is Move.CLAIM:
                self._check_turn(job, life, event, tell)
            self.leave(job, life)
        # A replaced job keeps or loses its place as the store likes: its turn cannot be told.
        if (
            event.target is State.PENDING
            and event.move is not Move.REPLACE
            and (any_key or event.key is None)
        ):
            self._join(job, life, event)

    def leave(self, job: str, life: Life) -> None:
        """Out of the line, if it stands in one."""
        if life.tier is not None:
            self._tiers[life.tier].pop(job, None)
            life.tier = None

    def _join(self, job: str, life: Life, event: Event) -> None:
        tier = DEFAULT_PRIORITY if event.priority is None else event.priority
        line = self._tiers.get(tier)
        if line is None:
            line = self._tiers[tier] = OrderedDict()
            self._descending = [self._tiers[each] for each in sorted(self._tiers, reverse=True)]
        line[job] = life
        if event.move is Move.RELEASE or event.move is Move.EXPIRE:
            line.move_to_end(job, last=False)
        life.tier = tier

    def _check_turn(self, job: str, life: Life, event: Event, tell: Tell) -> None:
        line = next(each for each in self._descending if each)
        first = next(iter(line))
        if first == job:
            return
        overtaken = line[first]
        if overtaken.tier == life.tier:
            tell(Rule.FIFO, event, f"claimed before {first}, which came first")
        else:
            tell(Rule.TIER, event, f"claimed in tier {life.tier} before {first} in tier {overtaken.tier}")
        # Whoever was passed over is named once, so that one fault is not told of every later claim.
        self.leave(first, overtaken)
