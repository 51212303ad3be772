"""A job as its producer sees it."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from penstock.core.errors import JobEndedError, ResultTimeoutError
from penstock.core.job import Job
from penstock.core.payload import decode_json
from penstock.core.states import State

R = TypeVar("R")


class JobReader(Protocol):
    """Where a handle asks about its job."""

    async def job(self, queue: str, job: str, /) -> Job: ...

    async def ended(self, queue: str, job: str, timeout: float | None, /) -> Job: ...

    async def cancel(self, queue: str, job: str, /) -> State: ...


class JobHandle(Generic[R]):
    """A job in the store. `created` is False when an idempotency key, or a job of its kind, stood in its way.

    `same_payload` then says whether that is the same work, and `replaced` that it was debounced: the job that
    waited now has the newer payload.
    """

    __slots__ = ("_decode", "_reader", "created", "id", "queue", "replaced", "same_payload")

    def __init__(
        self,
        reader: JobReader,
        queue: str,
        id: str,  # noqa: A002 (the word for it)
        decode: Callable[[bytes | None], Any],
        *,
        created: bool = False,
        same_payload: bool = True,
        replaced: bool = False,
    ) -> None:
        self._reader = reader
        self._decode = decode
        self.queue = queue
        self.id = id
        self.created = created
        self.same_payload = same_payload
        self.replaced = replaced

    def through(self, reader: JobReader) -> "JobHandle[R]":
        """The same job, asked about elsewhere."""
        return JobHandle(
            reader,
            self.queue,
            self.id,
            self._decode,
            created=self.created,
            same_payload=self.same_payload,
            replaced=self.replaced,
        )

    async def info(self) -> Job:
        """The whole record; JobNotFoundError when it is pruned or deleted."""
        return await self._reader.job(self.queue, self.id)

    async def status(self) -> State:
        """The state now; JobNotFoundError when the job is pruned or deleted."""
        return (await self.info()).state

    async def progress(self) -> Any:
        """The newest progress the handler told of; None if it told of none."""
        told = (await self.info()).progress
        return None if told is None else decode_json("progress", told)

    async def watch_progress(self, every: float = 0.5) -> AsyncIterator[Any]:
        """Each new progress value until the job has ended, looked for every so many seconds.

        Values that followed each other faster are left out; the last one never is.
        """
        seen: bytes | None = None
        while True:
            job = await self.info()
            if job.progress is not None and job.progress != seen:
                seen = job.progress
                yield decode_json("progress", seen)
            if job.state.is_ended:
                return
            with suppress(ResultTimeoutError):
                await self._reader.ended(self.queue, self.id, every)

    async def result(self, timeout: float | None = None) -> R:
        """What the handler returned, once it has: JobEndedError when the job ended without a result.

        After `timeout` seconds ResultTimeoutError; the job goes on.
        """
        job = await self._reader.ended(self.queue, self.id, timeout)
        if job.state is not State.COMPLETED:
            raise JobEndedError(job.id, job.state, job.reason, job.error)
        result: R = self._decode(job.result)
        return result

    async def cancel(self) -> State:
        """Take the job back: CANCELLED if it waited; ACTIVE if it runs, and is asked to stop.

        WrongStateError when it has ended already.
        """
        return await self._reader.cancel(self.queue, self.id)

    def __repr__(self) -> str:
        return f"<JobHandle {self.queue}/{self.id}>"
