"""Who gets in: what a queue answers to jobs, by what stands in it and what went in before."""

from collections.abc import Sequence

import msgspec

from penstock.core import effects
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.damaged import DAMAGED
from penstock.stores.postgres.records import more_of
from penstock.stores.rows import stored

_NOWHERE = QueueRef("", "")


class Fact(msgspec.Struct, frozen=True):
    """What known.sql found for a job: who has its id, its idempotency key, and who is one of its kind."""

    nonce: str | None
    state: str | None
    holder: str | None
    holder_state: str | None
    digest: str | None
    one: str | None
    since: int | None
    one_state: str | None
    one_task: str | None
    one_more: str | None
    same_payload: bool | None


class Replacement(msgspec.Struct, frozen=True):
    """Newer work in an older job's place."""

    id: str
    payload: bytes
    state: State
    visible_at: int | None


class _One(msgspec.Struct, frozen=True):
    """The job that is one of its kind; without a state its record is gone."""

    id: str
    since: int
    state: State | None
    is_same: bool


def known_columns(jobs: Sequence[NewJob]) -> list[list[str | None]]:
    """Jobs as the items of known.sql."""
    return [
        [new.id for new in jobs],
        [stored(new.idempotency_key) for new in jobs],
        [None if new.unique is None else stored(new.unique.key) for new in jobs],
        [None if new.unique is None else new.payload.decode() for new in jobs],
    ]


class Door:
    """Decides job by job, as if each had been done before the next one is asked about.

    `steps` is what is then to be written, in order: runs of new jobs, and of replacements of different jobs.
    """

    def __init__(
        self, now: int, *, room: int, has_keys: bool, at_door: bool, is_mistaken: bool = False
    ) -> None:
        self._now = now
        self._room = room
        self._has_keys = has_keys
        self._at_door = at_door
        self._is_mistaken = is_mistaken
        self.steps: list[list[NewJob] | list[Replacement]] = []
        self.kinds: dict[str, NewJob] = {}
        self._new: dict[str, NewJob] = {}
        self._keys: dict[str, NewJob] = {}
        self._states: dict[str, State] = {}
        self._payloads: dict[str, bytes] = {}

    def ask(self, new: NewJob, fact: Fact) -> Enqueued | Refused:
        """The answer for a job."""
        kept = self.stand_in(new, fact)
        if kept is None and self._is_mistaken:
            return Refused(Refusal.MODE)
        if kept is None and new.unique is not None:
            kept = self._kept_away(new, new.unique, fact)
        if kept is not None:
            return kept
        if self._has_keys and new.key is None:
            return Refused(Refusal.KEYLESS)
        # Others of its flow take up room while they wait: what was let in with them must not stay outside.
        is_let_in = not self._at_door and bool(new.parents or new.awaits)
        if self._room < 1 and not is_let_in:
            return Refused(Refusal.FULL)
        return self._let_in(new)

    def stand_in(self, new: NewJob, fact: Fact) -> Enqueued | Refused | None:
        """What has its id or its idempotency key; None when nothing has."""
        mine = self._new.get(new.id)
        nonce = fact.nonce if mine is None else mine.nonce
        if nonce is not None:
            state = self._state(new.id, fact.state)
            return Enqueued(new.id, True, state) if nonce == new.nonce else Refused(Refusal.DUPLICATE, state)
        if new.idempotency_key is None:
            return None
        theirs = self._keys.get(new.idempotency_key)
        if theirs is not None:
            return Enqueued(theirs.id, False, self._states[theirs.id], theirs.digest == new.digest)
        if fact.holder is None:
            return None
        # Once its record is gone the id may be another job's, also that of one that came in just now.
        state = None if fact.holder_state is None else self._state(fact.holder, fact.holder_state)
        return Enqueued(fact.holder, False, state, fact.digest == new.digest)

    def _state(self, job: str, found: str | None) -> State | None:
        return self._states.get(job) or (None if found is None else State(found))

    def _kept_away(self, new: NewJob, unique: Unique, fact: Fact) -> Enqueued | None:
        """What stands instead of a job that is not one of its kind."""
        one = self._one_of(new, unique, fact)
        if one is None:
            return None
        if one.state is None:
            throttled = unique.rule is UniqueRule.THROTTLE and self._now - one.since < unique.window_ms
            return Enqueued(one.id, False, None, False) if throttled else None
        if not unique.holds(one.state, self._now - one.since):
            return None
        if unique.rule is UniqueRule.DEBOUNCE and one.state in {State.PENDING, State.DELAYED}:
            return self._replace(one, new)
        return Enqueued(one.id, False, one.state, one.is_same)

    def _one_of(self, new: NewJob, unique: Unique, fact: Fact) -> _One | None:
        first = self.kinds.get(unique.key)
        if first is not None:
            same = (first.task, self._payloads.get(first.id, first.payload)) == (new.task, new.payload)
            return _One(first.id, self._now, self._states[first.id], same)
        if fact.one is None or fact.since is None:
            return None
        try:
            theirs = more_of(fact.one_more).unique
        except DAMAGED:
            # Its claim will set it aside.
            theirs = None
        # Once its record is gone the id may be that of a job of another kind.
        if fact.one_state is None or theirs is None or theirs.key != unique.key:
            return _One(fact.one, fact.since, None, False)
        newest = self._payloads.get(fact.one)
        same_payload = bool(fact.same_payload) if newest is None else newest == new.payload
        state = self._state(fact.one, fact.one_state)
        return _One(fact.one, fact.since, state, same_payload and fact.one_task == new.task)

    def _replace(self, one: _One, new: NewJob) -> Enqueued:
        # What a new job would be is what the older one becomes, except that it waits for no others.
        like = effects.enqueued(_NOWHERE, msgspec.structs.replace(new, awaits=()), self._now)
        self._states[one.id], self._payloads[one.id] = like.state, new.payload
        step = Replacement(one.id, new.payload, like.state, like.visible_at)
        last = self.steps[-1] if self.steps else []
        if last and all(isinstance(each, Replacement) and each.id != one.id for each in last):
            last.append(step)  # type: ignore[arg-type]
        else:
            self.steps.append([step])
        return Enqueued(one.id, False, like.state, one.is_same, replaced=True)

    def _let_in(self, new: NewJob) -> Enqueued:
        self._room -= 1
        state = effects.enqueued(_NOWHERE, new, self._now).state
        self._new[new.id] = new
        self._states[new.id] = state
        if new.idempotency_key is not None:
            self._keys[new.idempotency_key] = new
        if new.unique is not None:
            self.kinds[new.unique.key] = new
        last = self.steps[-1] if self.steps else []
        if last and isinstance(last[0], NewJob):
            last.append(new)
        else:
            self.steps.append([new])
        return Enqueued(new.id, True, state)
