"""One worker process of the demo: `python -m penstock.demo.worker URL DIARY NAME`."""

import asyncio
import sys
from pathlib import Path

from penstock.demo.diary import Diary
from penstock.demo.jobs import build
from penstock.demo.plan import LEASE_SECONDS, QUEUE, SLOTS


async def main(url: str, path: str, name: str) -> None:
    """Work until told to stop."""
    diary = Diary(Path(path))
    app, _ = build(url, diary)
    await app.worker(queues={QUEUE: SLOTS}, name=name, lease=LEASE_SECONDS).run(handle_signals=True)
    diary.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
