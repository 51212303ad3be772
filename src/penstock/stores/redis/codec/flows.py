"""Children of a job, and what is carried between queues, as scripts keep them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.core.flows import Child, ChildEnding, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.states import State
from penstock.stores.values import Adoption, Relay


class _Child(msgspec.Struct, frozen=True, array_like=True):
    """A child as scripts keep it for its parent."""

    number: int
    is_done: bool
    state: State | bool


class _Ending(msgspec.Struct, frozen=True, array_like=True):
    """An ending as lua/shared/relays.lua writes it."""

    parent: str
    child: str
    state: State | bool


class _Adoption(msgspec.Struct, frozen=True, array_like=True):
    """An adoption as calls/spawn.lua writes it."""

    parent: str
    children: tuple[JobRef, ...]


pack_job: Final = msgspec.msgpack.Encoder().encode
_read_job: Final = msgspec.msgpack.Decoder(NewJob).decode
CHILD_FIELDS: Final = _Child.__struct_fields__
_read_child: Final = msgspec.msgpack.Decoder(_Child).decode
_read_ending: Final = msgspec.msgpack.Decoder(_Ending).decode
_read_adoption: Final = msgspec.msgpack.Decoder(_Adoption).decode


def relay_of(queue: QueueRef, number: bytes, fields: Any) -> Relay:
    what: NewJob | Adoption | ChildEnding
    match fields[b"kind"]:
        case b"job":
            what = _read_job(fields[b"body"])
        case b"adoption":
            adoption = _read_adoption(fields[b"body"])
            what = Adoption(adoption.parent, adoption.children)
        case _:
            ending = _read_ending(fields[b"body"])
            child = JobRef(queue.name, ending.child)
            what = ChildEnding(ending.parent, child, _state(ending.state), fields.get(b"result"))
    return Relay(int(number.partition(b"-")[0]), fields[b"queue"].decode(), what)


def ordered_children(packed: Mapping[bytes, bytes]) -> list[tuple[bytes, _Child]]:
    known = {ref: _read_child(each) for ref, each in packed.items()}
    return sorted(known.items(), key=lambda item: item[1].number)


def child_of(ref: bytes, child: _Child, result: bytes | None) -> Child:
    return Child(_ref(ref), child.is_done, _state(child.state), result)


def _ref(text: bytes) -> JobRef:
    queue, _, job = text.decode().partition("/")
    return JobRef(queue, job)


def _state(state: State | bool) -> State | None:
    return state if isinstance(state, State) else None
