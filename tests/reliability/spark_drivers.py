"""Drivers of the pipeline that are killed and started again, and events that flow all the while."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.core import decide
from penstock.core.ids import IdMaker
from penstock.core.job import NewJob, Options, QueueRef
from penstock.stores.protocol import Store
from tests.reliability.grounds import Ground

QUEUES: Final = (QueueRef("default", "mail"), QueueRef("default", "web"))
PATIENCE: Final = 120.0
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ENDINGS: Final[tuple[decide.Ending, ...]] = (
    decide.Returned(b"1"),
    decide.Returned(b"1"),
    decide.Raised("ValueError: no", after_ms=20),
    decide.Refused("never"),
    decide.Postponed(20),
    decide.Interrupted(),
)


class Traffic:
    """Jobs that are enqueued, claimed, settled, left behind, cancelled and redriven, until told to stop."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self._ground = ground
        self._chance = random.Random(seed)
        self._enough = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._made = 0
        self._ids = IdMaker(lambda: time.time_ns() // 1_000_000, self._chance.getrandbits)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """For the time of the block, in a thread of its own."""
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
        async with self._ground.open() as store:
            for queue in QUEUES:
                await store.open_queue(queue)
            while not self._enough.is_set():
                for queue in QUEUES:
                    await self._step(store, queue)
                # Spark needs the processor more.
                await asyncio.sleep(0.2)

    async def _step(self, store: Store, queue: QueueRef) -> None:
        chance = self._chance
        number = (await store.open_queue(queue)).number
        await store.enqueue(queue, [self._new(number) for _ in range(4)])
        for lease in await store.expired(queue):
            await store.expire(queue, [decide.expire(lease, chance.uniform)])
        claims = await store.claim(queue, worker=f"w{chance.randint(1, 3)}", limit=6, lease_ms=300)
        for job in claims.jobs:
            # Some are left behind, to run out.
            if chance.random() < 0.9:
                ending = chance.choice(ENDINGS)
                await store.settle(queue, [decide.settle(job, ending, chance.uniform)])
                if isinstance(ending, decide.Refused) and chance.random() < 0.5:
                    await store.redrive(queue, [job.id])
        if claims.jobs and chance.random() < 0.1:
            await store.cancel(queue, [chance.choice(claims.jobs).id])

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


class Driver:
    """A process with the pipeline, its Spark and all that this starts; ended as one."""

    def __init__(self, url: str, out: Path, *, master: str = "local[2]", log: Path) -> None:
        self._out, self._log = out, log
        command = [sys.executable, "-m", "penstock.spark.run", "--url", url, "--out", str(out)]
        command += ["--every", "0.2", "--max-events", "200", "--master", master]
        options = f"--driver-memory 700m --driver-java-options '{QUICK}' --conf spark.ui.enabled=false"
        options += " --conf spark.sql.shuffle.partitions=2 --conf spark.executor.memory=512m"
        environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"}
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    def wait_for_try(self) -> None:
        """Until it has begun to write a batch."""
        self._wait_for("*/batch_id=*/*")

    def wait_for_batch(self) -> None:
        """Until another batch is in the tables."""
        self._wait_for("jobs/_manifests/*.json")

    def _wait_for(self, pattern: str) -> None:
        before = set(self._out.glob(pattern))
        give_up = time.monotonic() + PATIENCE
        while set(self._out.glob(pattern)) == before:
            assert self.process.poll() is None, f"the driver ended: {self._log.read_text()[-3_000:]}"
            assert time.monotonic() < give_up, "no batch was begun"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL to the driver and all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """SIGTERM to the driver alone; its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def executors(self) -> list[int]:
        """The processes of its executors."""
        found = []
        for each in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                is_ours = os.getsid(int(each.name)) == self.process.pid
                if is_ours and b"CoarseGrainedExecutorBackend" in (each / "cmdline").read_bytes():
                    found.append(int(each.name))
        return found
