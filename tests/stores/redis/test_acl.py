"""A user with only the rights that the documentation says are needed."""

import asyncio
import re
from pathlib import Path

from redis.asyncio import Redis

from penstock import Penstock, group
from penstock.core.states import State
from penstock.stores.redis.scripts import Scripts, loaded_sources
from tests.docs.pages import ROOT
from tests.stores.redis.operating import tell

PAGE: Path = ROOT / "docs/how-to/redis.md"
RULE = re.compile(r"^ACL SETUSER penstock (.+?)\n```", re.MULTILINE | re.DOTALL)
SECONDS = 20.0


def rule() -> list[str]:
    """The rule on the page."""
    found = RULE.search(PAGE.read_text())
    assert found is not None
    return found[1].split()


def test_every_command_of_the_scripts_is_in_the_rule() -> None:
    """Whoever adds one to a script adds it there."""
    used = {
        name.lower()
        for path in loaded_sources()
        if not path.startswith("include/")
        for name in re.findall(r"redis\.call\(\s*'([A-Z]+)'", Scripts().get(path.removesuffix(".lua")).text)
    }

    assert used <= {part.removeprefix("+") for part in rule()}


async def test_the_rule_on_the_page_is_enough(url: str, operator: Redis) -> None:
    """For enqueueing, claiming, settling, bells, events, schedules, flows, pauses, reads and the fsck."""
    await tell(operator, "ACL", "SETUSER", "penstock", *rule())
    app = Penstock(url.replace("redis://", "redis://penstock:secret@"))
    mail = app.queue("mail", mode="keyed", key_limit=2)

    @mail.task
    async def send(number: int) -> int:
        return number

    @mail.task
    async def last() -> str:
        return "done"

    keyed = send.options(key="k")
    app.cron("* * * * *", name="each-minute")(keyed.call(0))
    async with app:
        worker = app.worker()
        working = asyncio.create_task(worker.run())
        try:
            handle = await send.options(key="k", idempotency_key="one").enqueue(1)
            flow = await group([keyed.call(2), keyed.call(3)], then=last.options(key="l").call()).enqueue()
            later = await send.options(key="k", delay=3_600).enqueue(4)
            assert await handle.result(timeout=SECONDS) == 1
            assert await flow.result(timeout=SECONDS) == "done"
            await later.cancel()
        finally:
            worker.stop()
            await working
        store = app.store
        queue = (await store.queues("default"))[0].queue
        counts = await store.counts(queue)
        await store.turn(3_600_000)
        await store.prune(queue)
        findings = await store.check(queue)
        await store.info()
        await store.trim(queue, through=1)
        events = await store.events(queue, after=1)

    assert counts[State.CANCELLED] == 1
    assert findings == []
    assert events
    assert await tell(operator, "ACL", "LOG") == []


async def test_the_rule_on_the_page_lets_the_user_do_nothing_else(url: str, operator: Redis) -> None:
    """Neither other keys nor the server itself."""
    await tell(operator, "ACL", "SETUSER", "penstock", *rule())

    for command in (
        ["GET", "penstock:x"],
        ["HGET", "other", "x"],
        ["FLUSHALL"],
        ["CONFIG", "SET", "dir", "/"],
    ):
        answer = await tell(operator, "ACL", "DRYRUN", "penstock", *command)
        assert b"permissions" in answer, command
