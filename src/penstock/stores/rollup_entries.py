"""The rollups of a tenant's queues as key-value entries: a position per queue, and an entry per span of time.

A step is one guarded change of one entry: the position, with what the step adds in it. From then on the step
has happened. What it adds is then carried to the entries of the spans, each of which knows the last step that
it has; whoever comes next carries over what a killed process did not. So no step is lost or counted twice.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.core.cursors import read_cursor
from penstock.core.errors import InvalidError
from penstock.core.job import QueueRef
from penstock.core.rollups import (
    KEPT_MS,
    MINUTE_MS,
    SPANS,
    Deltas,
    FoldState,
    Row,
    check_deltas,
    drop_last_task,
    merge_rows,
)
from penstock.stores.bounds import ENTRY_BYTES, ENTRY_LIMIT
from penstock.stores.protocol import KeyValue, Queues
from penstock.stores.values import KeyValueEntry, QueueInfo, RollupPage, RollupPosition, SpanRollup

POSITIONS: Final = "rollups"
START: Final = "0"
"""The position of a queue of which nothing was folded."""
_TRIES: Final = 100
_LETTERS: Final = {span: "m" if span == MINUTE_MS else "h" for span in SPANS}


class _Head(msgspec.Struct, array_like=True):
    """The position of a queue: where the next step begins, and what the last one adds."""

    queue: str
    made: str
    step: int
    cursor: str
    state: FoldState
    rows: dict[int, dict[int, dict[str, Row]]] | None = None
    """What the step adds, until it is in the entries of its spans."""


class _Span(msgspec.Struct, array_like=True):
    """What happened in a span of time, with the steps up to `step`."""

    step: int = 0
    rows: dict[str, Row] = msgspec.field(default_factory=dict)


_ENCODER: Final = msgspec.msgpack.Encoder()
_HEADS: Final = msgspec.msgpack.Decoder(_Head)
_SPANS: Final = msgspec.msgpack.Decoder(_Span)


class RollupEntries:
    """The part `Rollups` of a store, on top of its parts `KeyValue` and `Queues`."""

    def __init__(self, key_value: KeyValue, queues: Queues) -> None:
        self._key_value = key_value
        self._queues = queues

    async def rollup_position(self, queue: QueueRef) -> RollupPosition | None:
        """Up to where the events of a queue were folded; None where there is no queue."""
        info = await self._queues.find_queue(queue)
        if info is None:
            return None
        head, _ = await self._head(info)
        if head is None:
            return RollupPosition(START, FoldState())
        return RollupPosition(head.cursor, head.state)

    async def fold(self, queue: QueueRef, from_cursor: str, to_cursor: str, deltas: Deltas) -> bool:
        """Add what events between two cursors add; False where the position is another one (by now)."""
        read_cursor("from_cursor", from_cursor)
        read_cursor("to_cursor", to_cursor)
        check_deltas(deltas)
        info = await self._queues.find_queue(queue)
        if info is None:
            return False
        head, version = await self._head(info)
        if head is None:
            await self._remove_deleted(queue.tenant, info)
            head = _Head(queue.name, info.made, 0, START, FoldState())
        elif head.rows is not None:
            await self._carry(info, head)
        if head.cursor != from_cursor:
            return False
        after = _Head(queue.name, info.made, head.step + 1, to_cursor, deltas.state, deltas.rows)
        body = _ENCODER.encode(after)
        if len(body) > ENTRY_BYTES:
            raise InvalidError("deltas", f"{len(body)} bytes", f"at most {ENTRY_BYTES} bytes")
        kept = await self._key_value.put_entry(queue.tenant, POSITIONS, _name(info), body, expected=version)
        if kept is None:
            return False
        await self._carry(info, after)
        after.rows = None
        await self._key_value.put_entry(
            queue.tenant, POSITIONS, _name(info), _ENCODER.encode(after), expected=kept.version
        )
        return True

    async def list_rollups(
        self, queue: QueueRef, span_ms: int, since: int, limit: int = ENTRY_LIMIT
    ) -> RollupPage:
        """The rollups of spans that began at a time or later, oldest first; `next` begins the next page."""
        if span_ms not in SPANS:
            raise InvalidError("span_ms", span_ms, f"one of {', '.join(map(str, SPANS))}")
        info = await self._queues.find_queue(queue)
        if info is None:
            return RollupPage([])
        limit = max(1, min(limit, ENTRY_LIMIT))
        # The step that is on its way is read first: an entry may have it by the time it is read.
        head, _ = await self._head(info)
        entries = await self._key_value.list_entries(
            queue.tenant, _namespace(info), after=_before(span_ms, since), limit=limit
        )
        mine = [each for each in entries if each.name.startswith(_LETTERS[span_ms])]
        found = {_begin(span_ms, each.name): _SPANS.decode(each.body) for each in mine}
        is_full = len(mine) == limit
        last = max(found, default=since) if is_full else None
        if head is not None and head.rows is not None:
            for begin, rows in head.rows[span_ms].items():
                if begin >= since and (last is None or begin <= last):
                    span = found.setdefault(begin, _Span())
                    if span.step < head.step:
                        merge_rows(span.rows, rows)
        rollups = [SpanRollup(begin, found[begin].rows) for begin in sorted(found)]
        return RollupPage(rollups, None if last is None else last + span_ms)

    async def expire_rollups(self, queue: QueueRef, now: int) -> int:
        """Remove entries of spans that need not be kept any longer, a batch; how many were."""
        info = await self._queues.find_queue(queue)
        if info is None:
            return 0
        removed = 0
        for span, kept in KEPT_MS.items():
            entries = await self._key_value.list_entries(
                queue.tenant, _namespace(info), after=_before(span, 0), limit=ENTRY_LIMIT
            )
            for each in entries:
                if not each.name.startswith(_LETTERS[span]) or _begin(span, each.name) + span > now - kept:
                    break
                await self._key_value.delete_entry(queue.tenant, _namespace(info), each.name)
                removed += 1
        return removed

    async def _head(self, info: QueueInfo) -> tuple[_Head | None, int]:
        entry = await self._key_value.get_entry(info.queue.tenant, POSITIONS, _name(info))
        if entry is None:
            return None, 0
        head = _HEADS.decode(entry.body)
        if (head.queue, head.made) != (info.queue.name, info.made):
            # Of a queue that was deleted and had this number.
            return None, entry.version
        return head, entry.version

    async def _carry(self, info: QueueInfo, head: _Head) -> None:
        """Bring what the last step adds into the entries of its spans, unless it is there."""
        for span, name, rows in _changes(head):
            for _ in range(_TRIES):
                entry = await self._key_value.get_entry(info.queue.tenant, _namespace(info), name)
                kept = _Span() if entry is None else _SPANS.decode(entry.body)
                if kept.step >= head.step:
                    break
                merge_rows(kept.rows, rows)
                kept.step = head.step
                if await self._put(info, name, kept, entry):
                    break
            else:
                raise InvalidError(
                    "rollups", f"an entry of {span} ms that others change all the time", "less"
                )

    async def _put(self, info: QueueInfo, name: str, span: _Span, entry: KeyValueEntry | None) -> bool:
        body = _ENCODER.encode(span)
        while len(body) > ENTRY_BYTES and drop_last_task(span.rows):
            body = _ENCODER.encode(span)
        expected = 0 if entry is None else entry.version
        kept = await self._key_value.put_entry(
            info.queue.tenant, _namespace(info), name, body, expected=expected
        )
        return kept is not None

    async def _remove_deleted(self, tenant: str, begun: QueueInfo) -> None:
        """Remove what deleted queues left, as another one begins."""
        known = {_name(info): info for info in await self._queues.list_queues(tenant)}
        after = ""
        while True:
            page = await self._key_value.list_entries(tenant, POSITIONS, after=after, limit=ENTRY_LIMIT)
            for entry in page:
                head, info = _HEADS.decode(entry.body), known.get(entry.name)
                is_there = info is not None and (head.queue, head.made) == (info.queue.name, info.made)
                if not is_there:
                    await self._remove_spans(tenant, _namespace_of(entry.name))
                    if entry.name != _name(begun):
                        await self._key_value.delete_entry(
                            tenant, POSITIONS, entry.name, expected=entry.version
                        )
            if len(page) < ENTRY_LIMIT:
                return
            after = page[-1].name

    async def _remove_spans(self, tenant: str, namespace: str) -> None:
        while page := await self._key_value.list_entries(tenant, namespace, limit=ENTRY_LIMIT):
            for entry in page:
                await self._key_value.delete_entry(tenant, namespace, entry.name)


def _changes(head: _Head) -> Iterator[tuple[int, str, dict[str, Row]]]:
    for span, begins in (head.rows or {}).items():
        for begin, rows in begins.items():
            yield span, _entry(span, begin), rows


def _name(info: QueueInfo) -> str:
    return f"{info.number:010d}"


def _namespace(info: QueueInfo) -> str:
    return _namespace_of(_name(info))


def _namespace_of(name: str) -> str:
    return f"{POSITIONS}.{name}"


def _entry(span: int, begin: int) -> str:
    return f"{_LETTERS[span]}{begin // span:010d}"


def _begin(span: int, name: str) -> int:
    return int(name[1:]) * span


def _before(span: int, since: int) -> str:
    """The name after which the entries of spans come that began at a time or later."""
    first = -(-since // span)
    return _LETTERS[span] if first <= 0 else _entry(span, (first - 1) * span)
