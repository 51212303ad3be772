"""The payload of each row of a batch: its columns as an object of arguments, or its column `payload`."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.core.errors import PayloadError
from penstock.core.payload import PAYLOAD_LIMIT, check_json, decode_json, without_value
from penstock.spark.sink.columns import Columns
from penstock.spark.sink.values import Flaw, Flaws, encode

_PAYLOAD: Final = "payload"
_NOTHING: Final = b"{}"


class Payloads:
    """How rows of one schema become payloads. The values of columns come from `values`."""

    def __init__(self, columns: Columns) -> None:
        self._members = tuple(columns.members.values())
        self._payload = columns.payload
        fields = [
            (f"f{number}", Any, msgspec.field(name=name)) for number, name in enumerate(columns.members)
        ]
        # A struct is made and encoded far sooner than a dict.
        self._arguments: Any = msgspec.defstruct("Arguments", fields) if fields else None

    def of(self, batch: pa.RecordBatch, values: Callable[[int], list[Any]], flaws: Flaws) -> list[bytes]:
        """One payload per row; what stands in the place of a bad row means nothing."""
        if self._payload is not None:
            payloads = self._of_one(values(self._payload), flaws)
        elif self._arguments is None:
            return [_NOTHING] * batch.num_rows
        else:
            make, lists = self._arguments, [values(at) for at in self._members]
            payloads = [encode(make(*row)) for row in zip(*lists, strict=True)]
        if max(map(len, payloads), default=0) > PAYLOAD_LIMIT:
            _refuse_large(payloads, flaws)
        return payloads

    def _of_one(self, values: Sequence[Any], flaws: Flaws) -> list[bytes]:
        payloads = []
        for at, value in enumerate(values):
            try:
                payloads.append(encode(_object(value)))
            except PayloadError as error:
                flaws.setdefault(at, Flaw(error.field, str(without_value(error))))
                payloads.append(_NOTHING)
        return payloads


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = decode_json(_PAYLOAD, value.encode())
        check_json(_PAYLOAD, value)
    if not isinstance(value, dict):
        raise PayloadError(_PAYLOAD, value, "a JSON object: the arguments by name")
    return value


def _refuse_large(payloads: Sequence[bytes], flaws: Flaws) -> None:
    for at, payload in enumerate(payloads):
        if len(payload) > PAYLOAD_LIMIT:
            reason = f"{_PAYLOAD}: found {len(payload)} bytes, wanted at most {PAYLOAD_LIMIT} bytes"
            flaws.setdefault(at, Flaw(_PAYLOAD, reason))
