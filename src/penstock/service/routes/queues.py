"""Queues: declare, show, count, pause, resume, purge and delete them, and set rules of keys."""

from typing import Final

from penstock.core.limits import check_declaration, check_key_rule
from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.routing import Routes
from penstock.service.wire.queues import (
    Count,
    KeyList,
    KeyListQuery,
    KeyRuleUpdate,
    QueueDeclaration,
    QueueList,
    QueuePauseRequest,
    QueuePurgeRequest,
    QueueView,
    key_view,
    queue_view,
)

routes: Final = Routes()


@routes.get("/v1/queues", Verb.READ, is_costly=True)
async def list_queues(request: Request) -> QueueList:
    """List the queues that the token can read."""
    views: list[QueueView] = []
    for each in await request.queues():
        views.append(queue_view(each))
        await request.yielder.checkpoint()
    return QueueList(views)


@routes.get("/v1/queues/{queue}", Verb.READ)
async def show_queue(request: Request, queue: str) -> QueueView:
    """Show a queue and how many jobs it has in each state."""
    info = await request.queue(queue)
    return queue_view(info, await request.store.reads.counts(info.queue))


@routes.put("/v1/queues/{queue}", Verb.MANAGE)
async def declare_queue(request: Request, queue: str, body: QueueDeclaration) -> QueueView:
    """Configure a queue's limits; creates the queue if needed.

    The same version with the same content changes nothing; with other content it is refused.
    """
    wanted = check_declaration(body.declaration)
    async with request.opening([queue]):
        info = await request.store.queues.declare(request.ref(queue), wanted)
    await request.note("queue.declare", queue, f"version {wanted.version}")
    return queue_view(info)


@routes.delete("/v1/queues/{queue}", Verb.MANAGE, status=204)
async def delete_queue(request: Request, queue: str) -> None:
    """Delete a queue, with its limits, idempotency keys and events; 409 says what it still has.

    It may have no job in any state, no schedule and no relay entry. `purge` deletes jobs.
    """
    ref = request.ref(queue)
    await request.deleting(ref)
    await request.client.delete_queue(queue)
    request.service.known.forget(ref)
    await request.note("queue.delete", queue)


@routes.post("/v1/queues/{queue}/pause", Verb.MANAGE)
async def pause_queue(request: Request, queue: str, body: QueuePauseRequest) -> QueueView:
    """Pause a queue: its jobs are not claimed, and running jobs go on."""
    await request.queue(queue)
    upkeep = await request.client.upkeep(queue)
    for_ms = None if body.seconds is None else round(body.seconds * 1000)
    await upkeep.pause(body.reason, request.principal.subject, for_ms)
    await request.note("queue.pause", queue, body.reason or "")
    return queue_view(await request.queue(queue))


@routes.post("/v1/queues/{queue}/resume", Verb.MANAGE)
async def resume_queue(request: Request, queue: str) -> QueueView:
    """Resume a paused queue."""
    await request.queue(queue)
    await (await request.client.upkeep(queue)).resume()
    await request.note("queue.resume", queue)
    return queue_view(await request.queue(queue))


@routes.post("/v1/queues/{queue}/purge", Verb.MANAGE)
async def purge_queue(request: Request, queue: str, body: QueuePurgeRequest) -> Count:
    """Delete the waiting jobs of a queue, or its jobs in the named states, without the running ones."""
    await request.queue(queue)
    many = await (await request.client.upkeep(queue)).purge(body.states)
    await request.note("queue.purge", queue, f"{many} jobs")
    return Count(many)


@routes.get("/v1/queues/{queue}/keys", Verb.READ, is_costly=True)
async def list_keys(request: Request, queue: str, query: KeyListQuery) -> KeyList:
    """List the keys that have jobs or a rule."""
    info = await request.queue(queue)
    return KeyList([key_view(each) for each in await request.store.queues.list_keys(info.queue, query.limit)])


@routes.put("/v1/queues/{queue}/keys", Verb.MANAGE)
async def set_key(request: Request, queue: str, body: KeyRuleUpdate) -> KeyRuleUpdate:
    """Set the limit and weight of a key, or remove both."""
    info = await request.queue(queue)
    if body.rule is not None:
        check_key_rule(info.mode, body.rule)
    await request.store.queues.set_key_rule(info.queue, body.key, body.rule)
    await request.note("queue.key", queue, body.key)
    return body
