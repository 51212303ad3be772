"""Queues: declare, look, count, pause, resume, purge, delete, and the rules of keys."""

from typing import Final

from penstock.core.limits import check_declaration, check_key_rule
from penstock.service.ask import Ask
from penstock.service.principal import Verb
from penstock.service.routing import Routes
from penstock.service.wire.queues import (
    DeclarationWish,
    KeyList,
    KeyRuleWish,
    KeysQuery,
    Many,
    PauseWish,
    PurgeWish,
    QueueList,
    QueueView,
    key_view,
    queue_view,
)

routes: Final = Routes()


@routes.get("/v1/queues", Verb.READ)
async def list_queues(ask: Ask) -> QueueList:
    """List the queues that the token lets see."""
    return QueueList([queue_view(each) for each in await ask.queues()])


@routes.get("/v1/queues/{queue}", Verb.READ)
async def show_queue(ask: Ask, queue: str) -> QueueView:
    """Show a queue and how many jobs it has in each state."""
    info = await ask.queue(queue)
    return queue_view(info, await ask.store.counts(info.queue))


@routes.put("/v1/queues/{queue}", Verb.MANAGE)
async def declare_queue(ask: Ask, queue: str, body: DeclarationWish) -> QueueView:
    """Say how a queue shares its workers; a queue that is new is made.

    The same version with the same content changes nothing, and with other content is refused.
    """
    wanted = check_declaration(body.declaration)
    async with ask.opening([queue]):
        info = await ask.store.declare(ask.ref(queue), wanted)
    await ask.note("queue.declare", queue, f"version {wanted.version}")
    return queue_view(info)


@routes.delete("/v1/queues/{queue}", Verb.MANAGE, status=204)
async def delete_queue(ask: Ask, queue: str) -> None:
    """Delete a queue, with its limits, idempotency keys and events; 409 says what it still has.

    It may have no job in any state, no schedule and no relay entry. `purge` deletes jobs.
    """
    await ask.client.delete_queue(queue)
    ask.service.known.forget(ask.ref(queue))
    await ask.note("queue.delete", queue)


@routes.post("/v1/queues/{queue}/pause", Verb.MANAGE)
async def pause_queue(ask: Ask, queue: str, body: PauseWish) -> QueueView:
    """Stop claims; what runs goes on."""
    await ask.queue(queue)
    upkeep = await ask.client.upkeep(queue)
    for_ms = None if body.seconds is None else round(body.seconds * 1000)
    await upkeep.pause(body.reason, ask.principal.subject, for_ms)
    await ask.note("queue.pause", queue, body.reason or "")
    return queue_view(await ask.queue(queue))


@routes.post("/v1/queues/{queue}/resume", Verb.MANAGE)
async def resume_queue(ask: Ask, queue: str) -> QueueView:
    """Allow claims again."""
    await ask.queue(queue)
    await (await ask.client.upkeep(queue)).resume()
    await ask.note("queue.resume", queue)
    return queue_view(await ask.queue(queue))


@routes.post("/v1/queues/{queue}/purge", Verb.MANAGE)
async def purge_queue(ask: Ask, queue: str, body: PurgeWish) -> Many:
    """Delete jobs that are not running: those that wait, or those of the states named."""
    await ask.queue(queue)
    many = await (await ask.client.upkeep(queue)).purge(body.states)
    await ask.note("queue.purge", queue, f"{many} jobs")
    return Many(many)


@routes.get("/v1/queues/{queue}/keys", Verb.READ)
async def list_keys(ask: Ask, queue: str, query: KeysQuery) -> KeyList:
    """List the keys that have jobs or a rule."""
    info = await ask.queue(queue)
    return KeyList([key_view(each) for each in await ask.store.keys(info.queue, query.limit)])


@routes.put("/v1/queues/{queue}/keys", Verb.MANAGE)
async def set_key(ask: Ask, queue: str, body: KeyRuleWish) -> KeyRuleWish:
    """Give a key a limit or a weight of its own, or take both back."""
    info = await ask.queue(queue)
    if body.rule is not None:
        check_key_rule(info.mode, body.rule)
    await ask.store.set_key_rule(info.queue, body.key, body.rule)
    await ask.note("queue.key", queue, body.key)
    return body
