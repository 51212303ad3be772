"""One worker process of the demo: `python -m penstock.demo.worker_process URL DIARY NAME`."""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from penstock.demo.demo_app import build
from penstock.demo.job_plan import LEASE_SECONDS, QUEUE, SLOTS
from penstock.demo.record_file import RecordFile


async def main(url: str, path: str, name: str) -> None:
    """Work until told to stop."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    diary = RecordFile(Path(path))
    app, _ = build(url, diary)
    await app.worker(queues={QUEUE: SLOTS}, name=name, lease=LEASE_SECONDS).run(handle_signals=True)
    diary.close()


def _stop_with_parent() -> None:
    # Standard input is a pipe from the demo: it ends when the demo does, however that came about.
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
