"""Every error about jobs, queues and stores. Spark, webhooks and egress have modules of their own for theirs.

PenstockError
├── InvalidError              bad input: names the field, what was found, what is wanted
│   ├── InvalidNameError      a tenant, queue, task, id or key that cannot be one
│   ├── OptionError           an option out of range, or two that exclude each other
│   └── PayloadError          arguments or a result that are not strict JSON, or too large
├── UnknownQueueError         no such queue in this app or store
├── UnknownTaskError          no such task in this app
├── JobNotFoundError          no job with that id
├── DuplicateJobError         the chosen id is taken by another job
├── IdempotencyConflictError  strict mode: same key, other payload
├── QueueFullError            the queue has a bounded length and is full
├── QueueNotEmptyError        the queue still has jobs, schedules or relay entries: it was not deleted
├── BatchRefusedError         enqueue_many: some jobs were taken in and some were not
├── StaleLeaseError           the lease is no longer held: nothing was changed
├── WrongStateError           the job's state does not allow the move
├── JobEndedError             waiting for a result: the job ended without one
├── ResultTimeoutError        waiting for a result: not ended in time
├── CursorLostError           events after the cursor were trimmed, or numbers were used again
├── DeclarationError          a queue's declaration does not agree with the stored one
├── FlowError                 a graph of jobs that cannot be: a cycle, or a job it does not have
├── TransactionError          enqueue_in: no open transaction that the job could be part of
├── SoftTimeoutError          in a handler: its soft limit is over, its timeout is near
├── StuckHandlerError         a worker ended itself: a thread ran on long after its timeout
├── HandlerError              a handler in another process raised, or could not be executed there
│   └── ProcessDiedError      the process of a handler ended before the handler did
├── ConfigError               settings, urls and app references that cannot be used
└── StoreError                the store failed; the message says what to do
    ├── StoreUnavailableError     it cannot be reached, went away, or refuses what it did before
    │   ├── StoreTimeoutError     it did not answer in time: the call may have been applied
    │   ├── PoolTimeoutError      no connection had room in time: nothing was sent
    │   └── NotReplicatedError    it has the job, but fewer replicas than wished confirmed it
    ├── StoreFormatError          what is there is not a Penstock store, or a damaged one
    ├── StoreVersionError         it was written by a newer Penstock
    ├── StoreReadOnlyError        it cannot be written
    └── StoreFullError            no room left; nothing was written
"""

from collections.abc import Mapping
from typing import Final

LONGEST_FIELD: Final = 240
"""Characters of a path into bad input that an error tells."""
LONGEST_TEXT: Final = 2_000
"""Characters of other text about bad input that an error tells."""


class PenstockError(Exception):
    """The root of the tree."""


class InvalidError(PenstockError, ValueError):
    """Bad input. `field`, `found` and `wanted` say where, what and what instead.

    A path into a payload has its keys, and what a model says of a value has its place: both are shortened.
    """

    def __init__(self, field: str, found: object, wanted: str) -> None:
        self.field = shortened(field, LONGEST_FIELD)
        self.found = found
        self.wanted = shortened(wanted, LONGEST_TEXT)
        super().__init__(f"{self.field}: found {_short(found)}, wanted {self.wanted}")

    def __reduce__(self) -> tuple[type, tuple[str, object, str]]:
        return type(self), (self.field, self.found, self.wanted)


class InvalidNameError(InvalidError):
    """A tenant, queue, task, id or key that cannot be one."""


class OptionError(InvalidError):
    """An option out of range, or two that exclude each other."""


class PayloadError(InvalidError):
    """Arguments or a result that are not strict JSON, of the wrong type, or too large."""


class UnknownQueueError(PenstockError, LookupError):
    """No such queue in this app or store."""


class UnknownTaskError(PenstockError, LookupError):
    """No such task in this app."""


class JobNotFoundError(PenstockError, LookupError):
    """No job with that id."""


class DuplicateJobError(PenstockError):
    """The chosen id is taken by another job."""


class IdempotencyConflictError(PenstockError):
    """Strict mode: the idempotency key is held by a job with another payload."""


class QueueFullError(PenstockError):
    """The queue has a bounded length and is full; the job was not enqueued."""


class BatchRefusedError(PenstockError):
    """Of many jobs some were not taken in. `outcomes` has a handle or an error for each, in their order."""

    def __init__(self, outcomes: list[object]) -> None:
        self.outcomes = outcomes
        errors = [each for each in outcomes if isinstance(each, PenstockError)]
        first = f", the first: {errors[0]}" if errors else ""
        super().__init__(f"{len(errors)} of {len(outcomes)} jobs were not enqueued{first}")

    def __reduce__(self) -> tuple[type, tuple[list[object]]]:
        return type(self), (self.outcomes,)


class StaleLeaseError(PenstockError):
    """The lease is no longer held: nothing was changed."""


class WrongStateError(PenstockError):
    """The job's state does not allow the move."""


class JobEndedError(PenstockError):
    """The job ended without a result. `state`, `reason` and `error` say how."""

    def __init__(self, job: str, state: str, reason: str | None, error: str | None) -> None:
        self.job = job
        self.state = state
        self.reason = reason
        self.error = error
        said = ": ".join(part for part in (reason, error) if part)
        super().__init__(f"job {job} is {state}" + (f" ({said})" if said else ""))

    def __reduce__(self) -> tuple[type, tuple[str, str, str | None, str | None]]:
        return type(self), (self.job, self.state, self.reason, self.error)


class ResultTimeoutError(PenstockError, TimeoutError):
    """The job did not end within the time given; it goes on."""


class CursorLostError(PenstockError):
    """Events after the cursor were trimmed, or the log is not the one the cursor came from.

    `trimmed` has the first and the last number of those that were, where that is what happened.
    """

    def __init__(self, message: str, trimmed: tuple[int, int] | None = None) -> None:
        self.trimmed = trimmed
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, tuple[int, int] | None]]:
        return type(self), (str(self), self.trimmed)


class QueueNotEmptyError(PenstockError):
    """The queue still has jobs, schedules or relay entries, and was not deleted.

    `found` says how many of each: jobs by their state, `schedules`, `relays`.
    """

    def __init__(self, message: str, found: Mapping[str, int] | None = None) -> None:
        self.found = dict(found or {})
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, dict[str, int]]]:
        return type(self), (str(self), self.found)


class DeclarationError(PenstockError):
    """The queue's declaration does not agree with the stored one; nothing was changed."""


class FlowError(PenstockError):
    """A graph of jobs that cannot be: a cycle, or a job that is not part of it."""


class TransactionError(PenstockError):
    """No open transaction that the job could be part of; nothing was enqueued."""


class SoftTimeoutError(PenstockError, TimeoutError):
    """In a handler: its soft limit is over. Return or clean up: its timeout ends it."""


class StuckHandlerError(PenstockError):
    """A worker ended itself: a plain function ran on in its thread long after its timeout."""


class HandlerError(PenstockError):
    """A handler in another process raised: `kind` is the type's name, `text` has the traceback.

    `reason` is the one that its job carries.
    """

    def __init__(self, kind: str, message: str, text: str, reason: str = "ERROR") -> None:
        self.kind = kind
        self.message = message
        self.text = text
        self.reason = reason
        super().__init__(f"{kind}: {message}" if message else kind)

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        return type(self), (self.kind, self.message, self.text, self.reason)


class ProcessDiedError(HandlerError):
    """The process of a handler ended before the handler did; `text` ends with what it wrote last."""


class ConfigError(PenstockError):
    """Settings, urls and app references that cannot be used."""


class StoreError(PenstockError):
    """The store failed."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached, went away during the call, or refuses for now what it did before."""


class StoreTimeoutError(StoreUnavailableError, TimeoutError):
    """The store did not answer in time: the call may have been applied."""


class PoolTimeoutError(StoreUnavailableError, TimeoutError):
    """No connection to the store had room in time: nothing was sent."""


class NotReplicatedError(StoreUnavailableError):
    """The store has the job, but too few replicas confirmed it. The same enqueue again is harmless."""


class StoreFormatError(StoreError):
    """What is there is not a Penstock store, or a damaged one."""


class DamagedQueueError(StoreFormatError):
    """What the store keeps of a queue itself cannot be read: no other queue is concerned."""


class StoreVersionError(StoreError):
    """The store was written by a newer Penstock."""


class StoreReadOnlyError(StoreError):
    """The store cannot be written."""


class StoreFullError(StoreError):
    """No room left; nothing was written."""


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters: of a longer one the beginning and the end.

    >>> shortened("body.aaaaaaaaaaaaaaaa.id", 12)
    'body.aaaa….id'
    """
    tail = most // 4
    return text if len(text) <= most else f"{text[: most - tail - 1]}…{text[len(text) - tail :]}"


def _short(found: object, limit: int = 120) -> str:
    text = repr(found)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
