"""Many jobs under one name: how far they are, and a job that runs once all have ended."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, cast

from penstock.core.errors import FlowError, InvalidNameError, JobEndedError, JobNotFoundError
from penstock.core.flows import Child, ChildPolicy, JobRef
from penstock.core.names import check_name
from penstock.core.states import State
from penstock.tasks.call import Call, FlowSender
from penstock.tasks.child_jobs import ChildJob
from penstock.tasks.context import JobContext
from penstock.tasks.execution import Execution, Tier
from penstock.tasks.flow import Flow
from penstock.tasks.flow_handle import FlowCounts, FlowReader, counted
from penstock.tasks.options import JobOptions
from penstock.tasks.task import AsyncTask, Task

BATCH_TASK: Final = "penstock.batch"
"""What runs at the end of a batch without a job of its own there: every worker knows it."""


class BatchHandle:
    """A batch in the store. `id` opens it again: `app.get_batch(id)`."""

    def __init__(self, reader: FlowReader, ref: JobRef) -> None:
        self._reader = reader
        self._ref = ref

    @property
    def id(self) -> str:
        """The queue and id of the job that runs after all others."""
        return str(self._ref)

    async def counts(self) -> FlowCounts:
        """How far its jobs are, what they spawned included; JobNotFoundError once it is pruned."""
        children = await self._reader.children(self._ref)
        if not children:
            await self._reader.job(self._ref.queue, self._ref.id)
        last, *records = await self._reader.jobs([self._ref, *_left(children)])
        # A job whose ending nobody counted yet and that is not there is still on its way, as long as the
        # job after it waits; once that has ended, nobody is told any more.
        missing = State.PENDING if last is not None and last.state.is_live else None
        states = [missing if job is None else job.state for job in records]
        return counted([*(child.state for child in children if child.is_done), *states])

    async def wait(self, timeout: float | None = None) -> FlowCounts:
        """How its jobs ended, once all have and the job after them, too; ResultTimeoutError after so long."""
        clock = asyncio.get_running_loop().time
        end = None if timeout is None else clock() + timeout
        await self._reader.ended(self._ref.queue, self._ref.id, timeout)
        # The job after them may have been cancelled alone: then they go on without it.
        while (counts := await self.counts()).live:
            for ref in _left(await self._reader.children(self._ref)):
                with suppress(JobNotFoundError):
                    await self._reader.ended(
                        ref.queue, ref.id, None if end is None else max(0.0, end - clock())
                    )
        return counts

    async def result(self, timeout: float | None = None) -> Any:
        """What the job after all others returned, as plain JSON; without one, the numbers by state."""
        job = await self._reader.ended(self._ref.queue, self._ref.id, timeout)
        if job.state is not State.COMPLETED:
            raise JobEndedError(job.id, job.state, job.reason, job.error)
        return ChildJob(job.queue, job.id, job.state, job.result).result

    async def outcomes(self) -> list[ChildJob]:
        """Its jobs in their order, with results of those that completed."""
        return [ChildJob.of(child) for child in await self._reader.children(self._ref)]

    async def cancel(self) -> int:
        """Cancel all that has not ended, the job after all others included; how many jobs that were."""
        await self._reader.carry(self._ref.queue)
        refs = [self._ref, *(child.ref for child in await self._reader.children(self._ref))]
        return await self._reader.cancel_all(refs)

    def __repr__(self) -> str:
        return f"<BatchHandle {self.id}>"


async def send_batch(
    sender: FlowSender, calls: Iterable[Call[Any]], then: Call[Any] | None, name: str | None
) -> BatchHandle:
    """The batch, taken in as a whole."""
    flow = Flow(name=name)
    nodes = [flow.add(call) for call in calls]
    if not nodes:
        raise FlowError("the batch is empty")
    last = then if then is not None else _last_call([node.call for node in nodes])
    end = flow.add(last, after=nodes, child_policy=ChildPolicy.IGNORE)
    handle = (await sender.send_flow(flow))[end]
    return BatchHandle(sender, JobRef(handle.queue, handle.id))


def batch_ref(batch: str) -> JobRef:
    """The job behind a batch's id; InvalidNameError when it is none."""
    queue, sign, job = batch.partition("/")
    if not sign:
        raise InvalidNameError("batch", batch, "the id of a batch, as in batch.id: queue/id")
    return JobRef(check_name("queue", queue), check_name("id", job))


def batch_task() -> Task[..., ..., Any]:
    """The task at the end of batches that have none of their own."""
    # Nobody enqueues through it, so there is nobody to send.
    return AsyncTask(
        _numbers,
        name=BATCH_TASK,
        queue="default",
        sender=cast(FlowSender, None),
        execution=Execution(executor=Tier.INLINE),
    )


def _left(children: Iterable[Child]) -> list[JobRef]:
    return [child.ref for child in children if not child.is_done]


def _last_call(calls: list[Call[Any]]) -> Call[Any]:
    queue, _ = Counter(call.queue for call in calls).most_common(1)[0]
    # Where jobs need a key, so does this one.
    key = next(call.options.key for call in calls if call.queue == queue)
    options = JobOptions(key=key)
    return Call(
        task=BATCH_TASK,
        queue=queue,
        payload=b"{}",
        options=options,
        decode=batch_task().decode_result,
        sender=calls[0].sender,
    )


async def _numbers(ctx: JobContext) -> dict[str, int]:
    return dict(Counter(str(child.state or "gone") for child in await ctx.children()))
