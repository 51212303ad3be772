"""A mail app: some servers hang up, some addresses do not exist, every job ends."""

import asyncio
import os

from penstock import Backoff, Fail, JobContext, JobEndedError, JobHandle, Penstock

app = Penstock(os.environ.get("MAIL_STORE", "sqlite:///mail.db"))
mail = app.queue("mail", max_attempts=3, backoff=Backoff.exponential(base=0.1, cap=1))


@mail.task(timeout=10)
async def send(ctx: JobContext, to: str, subject: str = "Hello") -> str:
    """Send one mail. The job's id goes along, so that a server can recognise a second try."""
    if "@" not in to:
        raise Fail(f"{to!r} is no address")
    ctx.progress({"step": "connecting"})
    await deliver(to, subject, message_id=ctx.id, attempt=ctx.attempt)
    return f"sent to {to} at attempt {ctx.attempt}"


async def deliver(to: str, subject: str, message_id: str, attempt: int) -> None:
    """Stands for a mail server. One hangs up at first, another one always does."""
    if to.endswith("@down.example") or (to.endswith("@flaky.example") and attempt == 1):
        raise ConnectionError(f"the server of {to} hung up")


async def outcome(job: JobHandle[str]) -> str:
    """How a job ended, in a line."""
    try:
        return await job.result(timeout=30)
    except JobEndedError as ended:
        return f"{ended.state} ({ended.reason}): {(ended.error or '').partition(chr(10))[0]}"


async def main() -> None:
    """Enqueue four mails, work until they ended, and tell how."""
    async with app:
        addresses = ["ada@mail.example", "bob@flaky.example", "eve@down.example", "nowhere"]
        jobs = await send.enqueue_many([(each,) for each in addresses])
        workers = app.worker({"mail": 4})
        working = asyncio.create_task(workers.run())
        for line in await asyncio.gather(*map(outcome, jobs)):
            print(line)
        workers.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
