"""What scripts answer."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.job import Claimed, ExpiredLease, NewJob
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.corruption import DECODE_ERRORS
from penstock.stores.redis.codec.jobs import Extra, Record, read_options, read_record
from penstock.stores.redis.codec.values import number_or_none, text_or_none
from penstock.stores.values import KeyHolder

Outcome = Applied | Refused

_OUTCOMES: Final[Mapping[bytes, Outcome]] = {
    **{f"applied/{state}".encode(): Applied(state) for state in State},
    **{f"applied/{state}/cancel".encode(): Applied(state, True) for state in State},
    **{f"refused/{why}/".encode(): Refused(why) for why in Refusal},
    **{f"refused/{why}/{state}".encode(): Refused(why, state) for why in Refusal for state in State},
}
_CREATED: Final = {f"created/{state}".encode(): state for state in State}
_STATES: Final = {state.encode(): state for state in State}


def outcome(answer: bytes) -> Outcome:
    """What was answered for one item."""
    return _OUTCOMES[answer]


def key_holder(answer: bytes) -> KeyHolder | None:
    """Who holds an idempotency key, as the script says."""
    if not answer:
        return None
    job, digest, *state = answer.decode().split(" ")
    return KeyHolder(job, State(state[0]) if state else None, digest)


def enqueued(jobs: Sequence[NewJob], answers: Sequence[bytes]) -> list[Enqueued | Refused]:
    """What was answered for new jobs; one answer may be for all."""
    if len(answers) != 1:
        return [_enqueued(new, answer) for new, answer in zip(jobs, answers, strict=True)]
    created = _CREATED.get(answers[0])
    if created is None:
        return [_enqueued(new, answers[0]) for new in jobs]
    return [Enqueued(new.id, True, created) for new in jobs]


def _enqueued(new: NewJob, answer: bytes) -> Enqueued | Refused:
    created = _CREATED.get(answer)
    if created is not None:
        return Enqueued(new.id, True, created)
    if answer.startswith(b"held/"):
        _, holder, state, same, replaced = answer.split(b"/")
        return Enqueued(holder.decode(), False, _STATES.get(state), same == b"1", replaced == b"1")
    refused = _OUTCOMES[answer]
    assert isinstance(refused, Refused)  # noqa: S101 (the script has no other answer)
    return refused


class Damage(NamedTuple):
    """Something to set aside: a `record`, or an entry of an index without its job; see quarantine/put.lua."""

    kind: str
    entry: bytes
    job: bytes
    what: str
    digest: str = ""


def damaged_record(job: bytes, record: bytes, error: Exception) -> Damage:
    """A record that cannot be read."""
    digest = hashlib.sha1(record, usedforsecurity=False).hexdigest()
    return Damage("record", job, job, f"a record that cannot be read: {error}", digest)


def claims(answer: Sequence[Any]) -> tuple[Claims, list[Damage]]:
    """What was answered to a claim, and what of it is to be set aside."""
    jobs, expired, wait_ms, has_keys, is_more, now_us = answer
    leases, damages = expired_leases(expired, has_keys)
    try:
        claimed = [
            _claimed(jobs[at], read_record(jobs[at + 1]), jobs[at + 2]) for at in range(0, len(jobs), 3)
        ]
    except DECODE_ERRORS:
        claimed = []
        for at in range(0, len(jobs), 3):
            try:
                claimed.append(_claimed(jobs[at], read_record(jobs[at + 1]), jobs[at + 2]))
            except DECODE_ERRORS as error:
                damages.append(damaged_record(jobs[at], jobs[at + 1], error))
    is_more = bool(is_more) or bool(damages)
    return Claims(claimed, leases, wait_ms, is_more, int(now_us)), damages


def _claimed(job: bytes, record: Record, payload: bytes | None) -> Claimed:
    extra = record.extra
    if payload is None:
        raise ValueError("its payload is missing")
    return Claimed(
        id=job.decode(),
        task=record.task,
        payload=payload,
        priority=record.priority,
        options=read_options(record.options),
        enqueued_at=record.enqueued_at,
        drive=record.drive,
        delivery=record.delivery,
        attempts=record.attempts,
        token=record.token,  # type: ignore[arg-type] # a claim wrote one
        fence=record.fence,
        deadline=record.deadline,
        key=text_or_none(record.key),
        last_delay_ms=number_or_none(record.last_delay_ms),
        cancel_requested=record.cancel_requested,
        parents=extra.parents if isinstance(extra, Extra) else (),
        unhandled_since=extra.unhandled_since if isinstance(extra, Extra) else None,
        headers=extra.headers if isinstance(extra, Extra) else None,
    )


def expired_leases(answer: Sequence[Any], has_keys: int) -> tuple[list[ExpiredLease], list[Damage]]:
    """Leases that ran out, each as its id and record, and what of them is to be set aside."""
    leases: list[ExpiredLease] = []
    damages: list[Damage] = []
    for job, packed in zip(answer[::2], answer[1::2], strict=True):
        if packed is None:
            damages.append(Damage("active", job, job, "an entry among the active without a record"))
            continue
        try:
            record = read_record(packed)
            if isinstance(record.token, str):
                leases.append(_expired_lease(job, record, has_keys))
            else:
                damages.append(
                    Damage("active", job, job, "an entry among the active of a job without a lease")
                )
        except DECODE_ERRORS as error:
            damages.append(damaged_record(job, packed, error))
    return leases, damages


def _expired_lease(job: bytes, record: Record, has_keys: int) -> ExpiredLease:
    return ExpiredLease(
        id=job.decode(),
        token=str(record.token),
        fence=record.fence,
        attempts=record.attempts,
        options=read_options(record.options),
        worker=text_or_none(record.worker),
        last_delay_ms=number_or_none(record.last_delay_ms),
        key=text_or_none(record.key) if has_keys else None,
    )
