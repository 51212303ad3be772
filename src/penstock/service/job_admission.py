"""Admission of jobs to the quotas of their tenant, before their payloads are decoded."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from penstock.service.limits import Limits
from penstock.service.principal import Principal, Quotas, Verb
from penstock.service.routing import Route
from penstock.service.wire.jobs import JobCreate
from penstock.stores.values import EVERYONE

ENVELOPE_BYTES: Final = 64 << 10
"""Bytes that a request for one job has at most beside its payload."""
_STORE_CALLS: Final = frozenset({"enqueue", "spawn"})


async def limits_before_body(
    limits: Limits, quotas: Quotas | None, route: Route, values: Mapping[str, str], principal: Principal
) -> Limits:
    """The bounds of this request's body; QuotaError when the tenant may not enqueue anything now.

    How many jobs there are is known once the body is decoded, and counted then.
    """
    enqueues = route.verb is Verb.ENQUEUE or (route.verb is Verb.STORE and values.get("move") in _STORE_CALLS)
    if quotas is None or not enqueues or principal.tenant == EVERYONE:
        return limits
    payload_bytes = await quotas.check(principal.tenant)
    if payload_bytes is None or route.takes is not JobCreate:
        return limits
    # One job: its body is hardly larger than its payload.
    most = min(limits.body_bytes, payload_bytes + ENVELOPE_BYTES)
    return msgspec.structs.replace(limits, body_bytes=most)


def sizes_of(payloads: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The sizes of payloads by queue, from pairs of a queue and a size."""
    sizes: dict[str, list[int]] = {}
    for queue, size in payloads:
        sizes.setdefault(queue, []).append(size)
    return sizes
