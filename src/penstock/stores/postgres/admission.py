"""Which jobs a queue takes in, by what it holds already and by those that it took in before."""

from collections.abc import Sequence

import msgspec

from penstock.core import effects
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.corruption import DECODE_ERRORS
from penstock.stores.postgres.codec import more_of
from penstock.stores.rows import stored

_NOWHERE = QueueRef("", "")


class Existing(msgspec.Struct, frozen=True):
    """What existing_jobs.sql found for a job: the jobs that hold its id, its idempotency key and its kind."""

    nonce: str | None
    state: str | None
    holder: str | None
    holder_state: str | None
    digest: str | None
    kind_job: str | None
    since: int | None
    kind_job_state: str | None
    kind_job_task: str | None
    kind_job_more: str | None
    same_payload: bool | None


class Replacement(msgspec.Struct, frozen=True):
    """The newer payload, time and headers of a job that is debounced."""

    id: str
    payload: bytes
    state: State
    visible_at: int | None
    headers: dict[str, str] | None = None


class _KindHolder(msgspec.Struct, frozen=True):
    """The job that holds a kind; without a state its record is gone."""

    id: str
    since: int
    state: State | None
    is_same: bool


def existing_columns(jobs: Sequence[NewJob]) -> list[list[str | None]]:
    """Jobs as the items of existing_jobs.sql."""
    return [
        [new.id for new in jobs],
        [stored(new.idempotency_key) for new in jobs],
        [None if new.unique is None else stored(new.unique.key) for new in jobs],
        [None if new.unique is None else new.payload.decode() for new in jobs],
    ]


class Admission:
    """Decides job by job, as if each had been taken in before the next one is decided on.

    `steps` is what is then to be written, in order: runs of new jobs, and of replacements of different jobs.
    """

    def __init__(
        self, now: int, *, space: int, has_keys: bool, has_spawns: bool, is_mistaken: bool = False
    ) -> None:
        self._now = now
        self._space = space
        self._has_keys = has_keys
        self._has_spawns = has_spawns
        self._is_mistaken = is_mistaken
        self.steps: list[list[NewJob] | list[Replacement]] = []
        self.kinds: dict[str, NewJob] = {}
        self._new: dict[str, NewJob] = {}
        self._keys: dict[str, NewJob] = {}
        self._states: dict[str, State] = {}
        self._payloads: dict[str, bytes] = {}

    def decide(self, new: NewJob, existing: Existing) -> Enqueued | Refused:
        """The answer for a job."""
        found = self.find(new, existing)
        if found is None and self._is_mistaken:
            return Refused(Refusal.MODE)
        if found is None and new.unique is not None:
            found = self._found_by_kind(new, new.unique, existing)
        if found is not None:
            return found
        if self._has_keys and new.key is None:
            return Refused(Refusal.KEYLESS)
        # The other jobs of its flow wait for this one in the space that they take up: it is never refused.
        is_in_flow = not self._has_spawns and bool(new.parents or new.awaits)
        if self._space < 1 and not is_in_flow:
            return Refused(Refusal.FULL)
        return self._admit(new)

    def find(self, new: NewJob, existing: Existing) -> Enqueued | Refused | None:
        """The answer by the job that has its id or its idempotency key; None when no job has."""
        mine = self._new.get(new.id)
        nonce = existing.nonce if mine is None else mine.nonce
        if nonce is not None:
            state = self._state(new.id, existing.state)
            return Enqueued(new.id, True, state) if nonce == new.nonce else Refused(Refusal.DUPLICATE, state)
        if new.idempotency_key is None:
            return None
        theirs = self._keys.get(new.idempotency_key)
        if theirs is not None:
            return Enqueued(theirs.id, False, self._states[theirs.id], theirs.digest == new.digest)
        if existing.holder is None:
            return None
        # Once the holder's record is gone its id may be another job's, also that of one taken in just now.
        state = None if existing.holder_state is None else self._state(existing.holder, existing.holder_state)
        return Enqueued(existing.holder, False, state, existing.digest == new.digest)

    def _state(self, job: str, found: str | None) -> State | None:
        return self._states.get(job) or (None if found is None else State(found))

    def _found_by_kind(self, new: NewJob, unique: Unique, existing: Existing) -> Enqueued | None:
        """The answer by the job that holds its kind; None where the new job may be taken in."""
        holder = self._kind_holder(new, unique, existing)
        if holder is None:
            return None
        if holder.state is None:
            throttled = unique.is_throttled(self._now - holder.since)
            return Enqueued(holder.id, False, None, False) if throttled else None
        if not unique.holds(holder.state, self._now - holder.since):
            return None
        if unique.rule is UniqueRule.DEBOUNCE and holder.state in {State.PENDING, State.DELAYED}:
            return self._replace(holder, new)
        return Enqueued(holder.id, False, holder.state, holder.is_same)

    def _kind_holder(self, new: NewJob, unique: Unique, existing: Existing) -> _KindHolder | None:
        first = self.kinds.get(unique.key)
        if first is not None:
            same = (first.task, self._payloads.get(first.id, first.payload)) == (new.task, new.payload)
            return _KindHolder(first.id, self._now, self._states[first.id], same)
        if existing.kind_job is None or existing.since is None:
            return None
        try:
            theirs = more_of(existing.kind_job_more).unique
        except DECODE_ERRORS:
            # The claim of the holder will set it aside.
            theirs = None
        # Once the holder's record is gone its id may be that of a job of another kind.
        if existing.kind_job_state is None or theirs is None or theirs.key != unique.key:
            return _KindHolder(existing.kind_job, existing.since, None, False)
        newest = self._payloads.get(existing.kind_job)
        same_payload = bool(existing.same_payload) if newest is None else newest == new.payload
        state = self._state(existing.kind_job, existing.kind_job_state)
        return _KindHolder(
            existing.kind_job, existing.since, state, same_payload and existing.kind_job_task == new.task
        )

    def _replace(self, holder: _KindHolder, new: NewJob) -> Enqueued:
        # The older job becomes what the new job would be, except that it waits for no others.
        like = effects.enqueued(_NOWHERE, msgspec.structs.replace(new, awaits=()), self._now)
        self._states[holder.id], self._payloads[holder.id] = like.state, new.payload
        step = Replacement(holder.id, new.payload, like.state, like.visible_at, new.headers)
        last = self.steps[-1] if self.steps else []
        if last and all(isinstance(each, Replacement) and each.id != holder.id for each in last):
            last.append(step)  # type: ignore[arg-type]
        else:
            self.steps.append([step])
        return Enqueued(holder.id, False, like.state, holder.is_same, replaced=True)

    def _admit(self, new: NewJob) -> Enqueued:
        self._space -= 1
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
