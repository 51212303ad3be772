"""Room for jobs in the quotas of their tenant: asked for before their payloads are looked at."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.service.limits import Limits
from penstock.service.principal import Principal, Quotas, Verb
from penstock.service.routing import Route
from penstock.service.wire.jobs import JobWish
from penstock.stores.values import EVERYONE

if TYPE_CHECKING:
    from penstock.service.ask import Ask

ENVELOPE_BYTES: Final = 64 << 10
"""The most that a request for one job has beside its payload."""
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
    if payload_bytes is None or route.takes is not JobWish:
        return limits
    # One job: its body is hardly larger than its payload.
    most = min(limits.body_bytes, payload_bytes + ENVELOPE_BYTES)
    return msgspec.structs.replace(limits, body_bytes=most)


async def admit_jobs(ask: "Ask", sizes: Iterable[tuple[str, int]]) -> None:
    """Room for all jobs, queue by queue. `sizes` has the queue and the bytes of the payload of each job."""
    if ask.service.quotas is None:
        return
    by_queue: dict[str, list[int]] = {}
    for queue, size in sizes:
        by_queue.setdefault(queue, []).append(size)
    for queue, found in by_queue.items():
        await ask.service.quotas.admit(ask.tenant, queue, jobs=len(found), largest=max(found))
