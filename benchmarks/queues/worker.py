"""A worker over many queues. Each job that starts is told with the time since its enqueue, in ms.

python -m benchmarks.queues.worker URL COUNT
"""

import asyncio
import gc
import sys
import time

from penstock import Penstock

TENANT = "default"
TASK = "begin"


def name_of(number: int) -> str:
    """The name of a queue."""
    return f"customer-{number:05}"


async def main(url: str, count: int) -> None:
    """Work until standard input ends."""
    app = Penstock(url)
    for number in range(count):
        app.queue(name_of(number))

    @app.task(name=TASK)
    async def begin(sent: float) -> None:
        print(f"{(time.time() - sent) * 1000:.3f}", flush=True)

    worker = app.worker([name_of(number) for number in range(count)])
    # As the command line does.
    gc.collect()
    gc.freeze()
    working = asyncio.create_task(worker.run())
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    worker.stop()
    await working


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
