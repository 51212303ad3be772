"""A flow over two queues: photos are made small, a page is made of those that could be, and published.

python examples/album.py
"""

import asyncio
import os

from penstock import Fail, JobContext, Penstock

app = Penstock(os.environ.get("ALBUM_STORE", "sqlite:///album.db"))
images = app.queue("images", max_attempts=2, backoff=[0.1], max_active=4)
pages = app.queue("pages")


@images.task
def shrink(photo: str) -> str:
    """Stands for work that takes a while, in a thread."""
    if not photo.endswith(".jpg"):
        raise Fail(f"{photo} is no photo")
    return photo.replace(".jpg", "-small.jpg")


@images.task
async def unpack(ctx: JobContext, archive: str) -> str:
    """One job for each photo in the archive; whoever waits for this one waits for them too."""
    names = [f"{archive}-{number}.jpg" for number in (1, 2)]
    await ctx.spawn(*(shrink.options(id=f"{ctx.id}-{name}").call(name) for name in names))
    return f"unpacked {archive}"


@pages.task
async def make_page(ctx: JobContext, title: str) -> list[str]:
    """The small photos, whatever became of the others."""
    children = await ctx.children()
    small = sorted(child.result for child in children if child.succeeded and child.result.endswith(".jpg"))
    return [f"# {title}", *small]


@pages.task
async def publish(ctx: JobContext) -> str:
    """The last job: it sees what the one before returned."""
    (page,) = await ctx.children()
    return f"published {page.result[0]!r} with {len(page.result) - 1} photos"


async def main() -> None:
    """Enqueue the flow, work until it ended, and tell how."""
    async with app:
        flow = app.flow()
        photos = [flow.add(shrink.call(name)) for name in ("sea.jpg", "notes.txt")]
        photos.append(flow.add(unpack.call("hills")))
        page = flow.add(make_page.call("Summer"), after=photos, child_policy="ignore")
        flow.add(publish.call(), after=[page])
        handle = await flow.enqueue()
        print("waiting:", (await handle.status()).waiting)

        workers = app.worker()
        working = asyncio.create_task(workers.run())
        print(await handle.result(timeout=60))
        for line in await handle[page].result():
            print(line)
        status = await handle.status()
        print("completed:", status.completed, "failed:", status.failed)
        workers.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
