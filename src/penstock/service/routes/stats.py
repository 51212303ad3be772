"""Statistics: what queues did over the last hours, and how long jobs waited and ran."""

from typing import Final

from penstock.client.queue_stats import read_stats
from penstock.core.job import QueueRef
from penstock.core.stats import QueueStats
from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.routing import Routes
from penstock.service.wire.stats import QueueStatsList, QueueStatsView, StatsQuery, stats_view

routes: Final = Routes()


@routes.get("/v1/stats", Verb.READ, is_costly=True)
async def list_stats(request: Request, query: StatsQuery) -> QueueStatsList:
    """Show what each queue did that the token can read."""
    views: list[QueueStatsView] = []
    for info in await request.queues():
        views.append(stats_view(await _read(request, info.queue, query)))
        await request.yielder.checkpoint()
    return QueueStatsList(views)


@routes.get("/v1/queues/{queue}/stats", Verb.READ, is_costly=True)
async def show_stats(request: Request, queue: str, query: StatsQuery) -> QueueStatsView:
    """Show what a queue did: in all, by task, and over time."""
    info = await request.queue(queue)
    return stats_view(await _read(request, info.queue, query))


async def _read(request: Request, queue: QueueRef, query: StatsQuery) -> QueueStats:
    return await read_stats(request.store, queue, max(1, round(query.since * 1000)))
