"""The event record: one per transition, written by the move that makes it."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.core.job import Job
from penstock.core.moves import Move
from penstock.core.states import State

EVENT_VERSION: Final = 1
ERROR_CHARS: Final = 500
DELETED: Final = "DELETED"


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"source": "from", "target": "to"},
):
    """One transition of one job. Unused fields are absent; readers ignore fields they do not know.

    `jobs` stands instead of `job` and `version` where one call removed many. `cursor` is where the next read
    begins; the store sets it when the event is read, and it is no part of the record.
    """

    v: int
    tenant: str
    queue: str
    seq: int
    move: Move
    at: int
    job: str | None = None
    version: int | None = None
    drive: int | None = None
    source: State | None = None
    target: State | None = None
    task: str | None = None
    key: str | None = None
    priority: int | None = None
    delivery: int | None = None
    attempt: int | None = None
    fence: int | None = None
    worker: str | None = None
    deadline: int | None = None
    visible_at: int | None = None
    reason: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    parent: str | None = None
    schedule: str | None = None
    instant: int | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    jobs: list[str] | None = None
    cursor: str = ""

    def to_json(self) -> bytes:
        """The record as it stands in a log."""
        return _ENCODER.encode(msgspec.structs.replace(self, cursor="") if self.cursor else self)

    @classmethod
    def from_json(cls, data: bytes | str) -> "Event":
        """The record back from a log; fields of later versions are ignored."""
        return _DECODER.decode(data)

    @property
    def mark(self) -> str:
        """What a cursor keeps of its event, to see that the log is still the same one."""
        log = f"{self.tenant}/{self.queue}"
        return mark_of(log, self.seq, self.at, self.move, self.job, self.version, self.jobs)


def mark_of(
    log: str, seq: int, at: int, move: str, job: str | None, version: int | None, jobs: Sequence[str] | None
) -> str:
    """The mark of an event by its fields; `log` is its tenant and queue with a slash between them."""
    what = f"{log} {seq} {at} {move} {job} {version} {','.join(jobs) if jobs else ''}"
    return hashlib.blake2b(what.encode("utf-8", "replace"), digest_size=4).hexdigest()


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event)

LEASE_MOVES: Final = frozenset(
    {
        Move.CLAIM,
        Move.PROGRESS,
        Move.COMPLETE,
        Move.FAIL,
        Move.RETRY,
        Move.BURY,
        Move.SNOOZE,
        Move.RELEASE,
        Move.EXPIRE,
    }
)
"""Moves that concern one lease: their events carry its delivery, attempt, fence and worker."""

FAULT_MOVES: Final = frozenset({Move.FAIL, Move.RETRY, Move.BURY, Move.EXPIRE, Move.CANCEL})
"""Moves whose events carry reason, error and fingerprint."""

COUNTED_MOVES: Final = frozenset({Move.RETRY, Move.BURY, Move.EXPIRE})
"""Moves that use up an attempt; a bury does not where no execution could begin."""


def event_of(
    job: Job,
    move: Move,
    source: State | None,
    *,
    seq: int,
    at: int,
    attempt: int | None = None,
    deadline: int | None = None,
) -> Event:
    """The event of a move that led to this record, from this state.

    `attempt` is the number of the execution that the move ended, and `deadline` that of its lease, where the
    record alone does not tell them.
    """
    fields: dict[str, Any] = {}
    if move is Move.ENQUEUE:
        fields["idempotency_key"] = job.idempotency_key
        fields["max_attempts"] = job.options.max_attempts
        fields["parent"] = str(job.parents[0]) if job.parents else None
        fields["schedule"] = job.schedule
        fields["instant"] = job.instant
    if move in LEASE_MOVES:
        fields["delivery"] = job.delivery
        counted = job.attempts if move in COUNTED_MOVES else job.attempts + 1
        fields["attempt"] = counted if attempt is None else attempt
        fields["fence"] = job.fence
        fields["worker"] = job.worker
    if move is Move.CLAIM:
        fields["deadline"] = job.deadline
    if move is Move.EXPIRE:
        fields["deadline"] = deadline
    if job.state is State.DELAYED:
        fields["visible_at"] = job.visible_at
    if move in FAULT_MOVES or job.state is State.CANCELLED or move is Move.UNBLOCK:
        fields["reason"] = job.reason
        fields["error"] = first_line(job.error)
        fields["fingerprint"] = job.fingerprint
    if move is Move.SNOOZE and job.unhandled_since is not None:
        fields["reason"] = job.reason
    if move is Move.DELETE:
        fields["reason"] = DELETED
    return Event(
        v=EVENT_VERSION,
        tenant=job.tenant,
        queue=job.queue,
        seq=seq,
        move=move,
        at=at,
        job=job.id,
        version=job.version,
        drive=job.drive,
        source=source,
        target=None if move is Move.DELETE else job.state,
        task=job.task,
        key=job.key,
        priority=job.priority,
        **fields,
    )


def first_line(error: str | None) -> str | None:
    """What of an error goes into events: its first line, bounded."""
    return None if error is None else error.partition("\n")[0][:ERROR_CHARS]


def fingerprint(error: str | None) -> str | None:
    """The same for errors that differ only in numbers, hexadecimal ids or quoted values."""
    line = first_line(error)
    if line is None:
        return None
    shape = _VALUES.sub("…", line)
    return hashlib.blake2b(shape.encode("utf-8", "replace"), digest_size=6).hexdigest()


_VALUES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F-]{16,}\b|\d+")
