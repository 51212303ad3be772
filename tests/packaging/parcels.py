"""The app whose job every environment runs; it is copied there and imports nothing but Penstock."""

from penstock import Penstock

app = Penstock()
parcels = app.queue("parcels")


@parcels.task
async def weigh(grams: int) -> int:
    """Something to see in a result."""
    return grams * 2
