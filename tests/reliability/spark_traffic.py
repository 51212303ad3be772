"""What flows while drivers die: jobs that live their lives in every store, and rows to make jobs of."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final

from penstock.core import decide
from penstock.core.ids import IdMaker
from penstock.core.job import NewJob, Options, QueueRef
from penstock.stores.protocol import Store
from tests.reliability.grounds import Ground

QUEUES: Final = (QueueRef("default", "mail"), QueueRef("default", "web"))
WRITTEN: Final = QueueRef("default", "written")
"""The queue that Spark writes to."""
FILE_ROWS: Final = 10
ENDINGS: Final[tuple[decide.Ending, ...]] = (
    decide.Returned(b"1"),
    decide.Returned(b"1"),
    decide.Raised("ValueError: no", after_ms=20),
    decide.RaisedFail("never"),
    decide.Postponed(20),
    decide.Interrupted(),
)


class Traffic:
    """Jobs that are enqueued, claimed, settled, left behind, cancelled and redriven, until told to stop.

    Beside them come files of rows; `files` is how many.
    """

    def __init__(self, grounds: Mapping[str, Ground], folder: Path, seed: int) -> None:
        self.files = 0
        self._grounds = grounds
        self._folder = folder
        self._chance = random.Random(seed)
        self._enough = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._made = 0
        self._ids = IdMaker(lambda: time.time_ns() // 1_000_000, self._chance.getrandbits)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """For the time of the block, in a thread of its own."""
        self._folder.mkdir()
        self._thread.start()
        try:
            yield
        finally:
            self._enough.set()
            self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._flow())
        except BaseException as error:  # noqa: BLE001 (told to whoever ends the block)
            self._failure = error

    async def _flow(self) -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(ground.open()) for ground in self._grounds.values()]
            while not self._enough.is_set():
                self._write_file()
                for store in stores:
                    for queue in QUEUES:
                        await self._step(store, queue)
                # Spark needs the processor more.
                await asyncio.sleep(1)

    async def _step(self, store: Store, queue: QueueRef) -> None:
        chance = self._chance
        number = (await store.queues.open_queue(queue)).number
        await store.moves.enqueue(queue, [self._new(number) for _ in range(2)])
        for lease in await store.reads.expired(queue):
            await store.moves.expire(queue, [decide.expire(lease, chance.uniform)])
        claims = await store.moves.claim(queue, worker=f"w{chance.randint(1, 3)}", limit=3, lease_ms=300)
        for job in claims.jobs:
            # Some are left behind, to run out.
            if chance.random() < 0.9:
                ending = chance.choice(ENDINGS)
                await store.moves.settle(queue, [decide.settle(job, ending, chance.uniform)])
                if isinstance(ending, decide.RaisedFail) and chance.random() < 0.5:
                    await store.moves.redrive(queue, [job.id])
        if claims.jobs and chance.random() < 0.1:
            await store.moves.cancel(queue, [chance.choice(claims.jobs).id])

    def _new(self, number: int) -> NewJob:
        self._made += 1
        return NewJob(
            id=self._ids.make(number),
            nonce=str(self._made),
            task="send",
            payload=b"{}",
            delay_ms=self._chance.choice([0, 0, 50]),
            options=Options(max_attempts=3),
        )

    def _write_file(self) -> None:
        rows = [json.dumps({"file": self.files, "n": n}) for n in range(FILE_ROWS)]
        # Spark leaves files alone whose names begin like this.
        unfinished = self._folder / f"_{self.files}"
        unfinished.write_text("\n".join(rows))
        unfinished.rename(self._folder / f"{self.files:05}.json")
        self.files += 1
