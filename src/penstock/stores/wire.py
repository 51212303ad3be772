"""The protocol of a store as messages: each call with its arguments, and its answer, as MessagePack.

The table is made from the protocol itself, so that a call which is added there is here too. Both ends use it:
the service, which has a store, and the store that has a service.
"""

import inspect
from collections.abc import Callable, Generator, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.core.flows import ChildEnding
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Settlement
from penstock.core.outcomes import Applied, Enqueued, Refused
from penstock.stores.protocol import (
    Clock,
    EventLog,
    Flows,
    HasHoldups,
    Health,
    KeyValue,
    Moves,
    Quarantine,
    Queues,
    Readers,
    Reads,
    Rollups,
    Schedules,
    UpkeepReads,
    Workers,
)
from penstock.stores.values import Adoption, Firing, Relay, Spawn, Topic

PARTS: Final[dict[str, type]] = {
    "moves": Moves,
    "flows": Flows,
    "schedules": Schedules,
    "reads": Reads,
    "upkeep": UpkeepReads,
    "queues": Queues,
    "key_value": KeyValue,
    "workers": Workers,
    "rollups": Rollups,
    "events": EventLog,
    "readers": Readers,
    "holdups": HasHoldups,
    "clock": Clock,
    "quarantine": Quarantine,
    "health": Health,
}
MEDIA_TYPE: Final = "application/msgpack"
MOST_SUBSCRIPTIONS: Final = 256
"""Subscriptions on one stream."""

ANSWER_BYTES: Final = 8 << 20
"""An answer of this size or more may be a part: `RemoteStore` asks for what follows."""
MOST_ASKED: Final = 10_000
"""Jobs or events that one answer is asked for: it is held in memory while it goes out."""
MOST_ITEMS: Final = 20_000
"""Entries of one list: the relay entries of the largest flow, and some."""
MOST_REFS: Final = 100_000
"""References of all jobs of one call to the jobs that they wait for, or that wait for them."""
RECORD_BYTES: Final = 1 << 20
"""The largest record of a job, its payload not counted."""
SMALL_BYTES: Final = 64 << 10
"""Records up to this size are decoded without another look at what they are made of."""

Convert = Callable[[Any], Any]
Steps = Generator[None, None, Any]


ANY_QUEUE: Final = "*"
"""In the place of a queue's name: a subscription to all queues of the tenant, a notification of any."""


class QueueTopic(msgspec.Struct, frozen=True, array_like=True):
    """What a client subscribes to, and what it is notified of."""

    queue: str
    topic: Topic


class Subscriptions(msgspec.Struct, frozen=True):
    """What a client subscribes to, all of one tenant."""

    tenant: str
    topics: list[QueueTopic]


class Hello(msgspec.Struct, frozen=True):
    """What a service says of its store to those who open it from afar. `body_bytes` is the largest call."""

    kind: str
    numbers_in_order: bool
    body_bytes: int


class Choice:
    """One of several records: on the wire each is a list that begins with its name."""

    def __init__(self, *kinds: type[msgspec.Struct]) -> None:
        self._tagged: dict[type, type] = {}
        self._kinds: dict[type, type] = {}
        for kind in kinds:
            fields = [
                (each.name, each.type, msgspec.field(default=each.default))
                if each.default is not msgspec.NODEFAULT
                else (each.name, each.type)
                for each in msgspec.structs.fields(kind)
            ]
            tagged = msgspec.defstruct(kind.__name__, fields, tag=kind.__name__, array_like=True, gc=False)
            self._tagged[kind], self._kinds[tagged] = tagged, kind
        self.type: Any = Union[tuple(self._kinds)]  # noqa: UP007 (made at run time)

    def out(self, record: Any) -> Any:
        """The record as it goes out."""
        return self._tagged[type(record)](*msgspec.structs.astuple(record))

    def back(self, tagged: Any) -> Any:
        """The record that came."""
        return self._kinds[type(tagged)](**msgspec.structs.asdict(tagged))


SETTLEMENT: Final = Choice(*get_args(Settlement))
OUTCOME: Final = Choice(Applied, Refused, Enqueued)
CARRIED: Final = Choice(NewJob, Adoption, ChildEnding)
_NO_BYTES: Final = msgspec.Raw(b"")
_PAYLOAD: Final = msgspec.defstruct("Payload", [("payload", msgspec.Raw, _NO_BYTES)])
_RECORD: Final = msgspec.defstruct(
    "Record", [("payload", msgspec.Raw, _NO_BYTES), ("job", _PAYLOAD | None, None)]
)
"""What is looked at of a job's or a spawn's record before it is decoded."""
_FIRING: Final = msgspec.defstruct(
    "Firing",
    [
        ("name", str),
        ("at", int),
        ("jobs", Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_ITEMS)]),
        ("next_at", int | None),
        ("last_at", int | None),
    ],
)
_RELAY: Final = msgspec.defstruct("Relay", [("number", int), ("queue", str), ("what", CARRIED.type)])


class Codec(msgspec.Struct, frozen=True):
    """How values of one type travel. `read` decodes one that came, in steps that others may run between."""

    type: Any
    out: Convert | None = None
    back: Convert | None = None
    read: Callable[[str, msgspec.Raw], Steps] | None = None

    def reading(self, path: str, raw: msgspec.Raw) -> Steps:
        """The value that came; ValidationError names its place."""
        if self.read is not None:
            return (yield from self.read(path, raw))
        came = _decoded(path, raw, self.type)
        return came if self.back is None else self.back(came)


class Call(msgspec.Struct, frozen=True):
    """One row: a call of the protocol. `scope` is what it is about: a queue, a tenant, or the whole store."""

    name: str
    part: str
    """The part of the store that has the call."""
    scope: str
    fields: tuple[str, ...]
    arguments: type
    outer: type
    """The same with arguments that are not decoded yet."""
    answer: Codec
    codecs: dict[str, Codec]

    def encode(self, tenant: str | None, queue: str | None, arguments: dict[str, Any]) -> bytes:
        """A call as it goes out; `arguments` has its arguments by name, without the queue or tenant."""
        sent = {
            name: value if (out := self.codecs[name].out) is None else out(value)
            for name, value in arguments.items()
        }
        return _ENCODER.encode(self.arguments(tenant=tenant, queue=queue, **sent))

    def decode_in_steps(
        self, body: bytes
    ) -> Generator[None, None, tuple[str | None, str | None, dict[str, Any]]]:
        """The tenant, the queue's name and the arguments of a call that came."""
        came: Any = msgspec.msgpack.decode(body, type=self.outer)
        arguments = {}
        for name in self.fields:
            raw = getattr(came, name)
            if raw is not msgspec.UNSET:
                yield
                arguments[name] = yield from self.codecs[name].reading(name, raw)
        return came.tenant, came.queue, arguments

    def encode_answer(self, answer: Any) -> bytes:
        """The answer as it goes out."""
        out = self.answer.out
        return _ENCODER.encode(answer if out is None else out(answer))

    def decode_answer(self, body: bytes) -> Any:
        """The answer that came."""
        came = msgspec.msgpack.decode(body, type=self.answer.type)
        return came if self.answer.back is None else self.answer.back(came)


def _codec(kind: Any) -> Codec:
    """How a type of the protocol travels: as it is, unless it has a choice of records in it."""
    if kind is NoneType:
        return Codec(None)
    args = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        records = [each for each in args if isinstance(each, type) and issubclass(each, msgspec.Struct)]
        if len(records) > 1:
            choice = SETTLEMENT if set(records) == set(get_args(Settlement)) else OUTCOME
            return Codec(choice.type, choice.out, choice.back)
        return Codec(kind)
    if get_origin(kind) in (list, Sequence):
        inner = _codec(args[0])
        listed = list[inner.type]  # type: ignore[name-defined]
        return Codec(listed, _each(inner.out), _each(inner.back), _list_reader(inner))
    if kind is Firing:
        return Codec(kind, read=_read_firing)
    if kind is Relay:
        return Codec(_RELAY, _relay_out, _relay_back)
    return Codec(kind)


def _each(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: [convert(value) for value in values]


def _list_reader(inner: Codec) -> Callable[[str, msgspec.Raw], Steps]:
    """Reads lists of bounded length. Their number is known before the first of their items is decoded."""
    is_job = inner.type in (NewJob, Spawn)
    item = msgspec.Raw if is_job else inner.type
    bounded: Any = Annotated[list[item], msgspec.Meta(max_length=MOST_ITEMS)]  # type: ignore[valid-type]

    def read(path: str, raw: msgspec.Raw) -> Steps:
        came = _decoded(path, raw, bounded)
        yield
        if is_job:
            came = yield from _read_jobs(path, came, inner.type)
        if inner.back is None:
            return came
        values = []
        for each in came:
            values.append(inner.back(each))
            yield
        return values

    return read


def _read_firing(path: str, raw: msgspec.Raw) -> Steps:
    came = _decoded(path, raw, _FIRING)
    jobs = yield from _read_jobs(f"{path}.jobs", came.jobs, NewJob)
    return Firing(came.name, came.at, tuple(jobs), came.next_at, came.last_at)


def _read_jobs(path: str, raws: Sequence[msgspec.Raw], kind: Any) -> Steps:
    """Jobs, or spawns: one by one, because each can hold long lists of other jobs."""
    decoder = _decoder(kind)
    records, refs = [], 0
    for place, raw in enumerate(raws):
        here = f"{path}[{place}]"
        if len(bytes(raw)) > SMALL_BYTES:
            _check_record(here, raw)
        try:
            record = decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise _placed(here, error) from None
        job = record.job if kind is Spawn else record
        refs += len(job.awaits) + len(job.parents)
        if refs > MOST_REFS:
            raise msgspec.ValidationError(
                f"Expected `at most {MOST_REFS} references to other jobs`, got `more` - at `$.{path}`"
            )
        records.append(record)
        yield
    return records


def _check_record(path: str, raw: msgspec.Raw) -> None:
    found = _decoded(path, raw, _RECORD)
    payload = found.payload if found.job is None else found.job.payload
    size = len(bytes(raw)) - len(bytes(payload))
    if size > RECORD_BYTES:
        raise msgspec.ValidationError(
            f"Expected `at most {RECORD_BYTES} bytes beside the payload`, got `{size} bytes` - at `$.{path}`"
        )


def _decoded(path: str, raw: msgspec.Raw, kind: Any) -> Any:
    try:
        return _decoder(kind).decode(raw)
    except msgspec.ValidationError as error:
        raise _placed(path, error) from None


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def _placed(path: str, error: msgspec.ValidationError) -> msgspec.ValidationError:
    """The same error with the place of the argument before the place in it."""
    what, _, where = str(error).partition(" - at `$")
    return msgspec.ValidationError(f"{what} - at `$.{path}{where or '`'}")


def _relay_out(relay: Relay) -> Any:
    return _RELAY(relay.number, relay.queue, CARRIED.out(relay.what))


def _relay_back(tagged: Any) -> Relay:
    return Relay(tagged.number, tagged.queue, CARRIED.back(tagged.what))


def _call(part: str, name: str, method: Any) -> Call:
    hints = get_type_hints(method)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    scope = "store"
    codecs: dict[str, Codec] = {}
    fields: list[Any] = [("tenant", str | None, None), ("queue", str | None, None)]
    for each in parameters:
        kind = hints[each.name]
        if kind is QueueRef:
            scope = "queue"
        elif each.name == "tenant":
            scope = "tenant"
        else:
            codec = codecs[each.name] = _codec(kind)
            optional = each.default is not inspect.Parameter.empty
            wired = (codec.type | msgspec.UnsetType, msgspec.UNSET) if optional else (codec.type,)
            fields.append((each.name, *wired))
    if name == "put_schedule":
        # The schedule itself says whose it is.
        scope = "tenant"
    arguments = msgspec.defstruct(name, fields, kw_only=True, omit_defaults=True, forbid_unknown_fields=True)
    # The tenant and the queue come first; any other argument stays as it came, with its default or without.
    raw = [(field[0], msgspec.Raw, *field[2:]) for field in fields[2:]]
    outer = msgspec.defstruct(name, [*fields[:2], *raw], kw_only=True, forbid_unknown_fields=True)
    return Call(name, part, scope, tuple(codecs), arguments, outer, _codec(hints["return"]), codecs)


_ENCODER: Final = msgspec.msgpack.Encoder()
METHODS: Final[dict[str, Callable[..., Any]]] = {
    name: method
    for part in PARTS.values()
    for name, method in vars(part).items()
    if inspect.iscoroutinefunction(method)
}
"""The protocol's own definition of each call."""
DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    name: {
        each.name: each.default
        for each in inspect.signature(method).parameters.values()
        if each.default is not inspect.Parameter.empty
    }
    for name, method in METHODS.items()
}
"""The arguments of each call that may be left out, with their values."""
CALLS: Final[dict[str, Call]] = {
    name: _call(part, name, METHODS[name])
    for part, protocol in PARTS.items()
    for name in vars(protocol)
    if name in METHODS
}
"""Every call of the protocol by its name."""
