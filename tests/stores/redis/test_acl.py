"""A user with only the rights that the documentation says are needed."""

import ast
import asyncio
import re
from pathlib import Path

from redis.asyncio import Redis

import penstock.stores.redis
from penstock import Penstock, group
from penstock.core.states import State
from penstock.stores.redis.scripts import Scripts, loaded_sources
from tests.docs.pages import ROOT
from tests.kit import valkey
from tests.kit.waiting import PATIENCE
from tests.stores.redis.operating import tell

PAGE: Path = ROOT / "docs/how-to/redis.md"
SOURCES: Path = Path(penstock.stores.redis.__file__).parent
IN_LUA = re.compile(r"\b(?:p?call|run)\(\s*'([A-Z]+)'(?:, '([A-Z]+)')?")
CONTAINERS = {"client", "cluster", "config", "pubsub"}
NOT_SENT = {"readonly"}
"""Words that are commands as well, and stand in the client as the beginning of a server's error."""
WITHOUT_RIGHT = {"auth"}
"""Commands that every user may send."""


def granted(text: str) -> set[str]:
    """The commands that a text grants, as in `+hget +config|get`."""
    return set(re.findall(r"\+([a-z]+(?:\|[a-z]+)?)", text))


def sent_by_scripts() -> set[str]:
    """The commands in the scripts as the server gets them."""
    scripts = Scripts()
    names = [path.removesuffix(".lua") for path in loaded_sources() if not path.startswith("shared/")]
    found = [pair for name in names for pair in IN_LUA.findall(scripts.get(name).text)]
    return {named(first, second or None) for first, second in found}


def sent_by_the_client(known: set[str]) -> set[str]:
    """The commands that the client's modules begin a call or a tuple with."""
    found = set[str]()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
            words = [part.value if isinstance(part, ast.Constant) else None for part in parts]
            first = words[0] if isinstance(node, ast.Call | ast.Tuple) and words else None
            if isinstance(first, str) and first.isupper() and first.lower() in known:
                found.add(named(first, *words[1:2]))
    return found - NOT_SENT - WITHOUT_RIGHT


def named(command: str, word: object = None) -> str:
    """The command as rights name it."""
    is_container = command.lower() in CONTAINERS and isinstance(word, str)
    return f"{command}|{word}".lower() if is_container else command.lower()


async def test_the_rights_on_the_page_are_what_scripts_and_client_send(operator: Redis) -> None:
    """No command is missing there, and none is granted that nobody sends."""
    known = set(await operator.command())
    page = PAGE.read_text(encoding="utf-8")
    beside = re.search(r"Add `([^`]+)` for a cluster, and `([^`]+)` for", page)
    assert beside is not None

    documented = granted(" ".join([*valkey.documented_rule(), *beside.groups()]))

    assert documented == sent_by_scripts() | sent_by_the_client(known)


async def test_the_rule_on_the_page_is_enough(url: str, operator: Redis) -> None:
    """For enqueueing, claiming, settling, subscriptions, events, schedules, flows, pauses, reads and fsck."""
    await tell(operator, "ACL", "SETUSER", "penstock", *valkey.documented_rule())
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
            assert await handle.result(timeout=PATIENCE) == 1
            assert await flow.result(timeout=PATIENCE) == "done"
            await later.cancel()
        finally:
            worker.stop()
            await working
        store = app.store
        queue = (await store.queues.list_queues("default"))[0].queue
        counts = await store.reads.counts(queue)
        await store.clock.advance_clock(3_600_000)
        await store.moves.prune(queue)
        findings = await store.health.check(queue)
        await store.health.info()
        await store.events.trim(queue, through=1)
        events = await store.events.read_events(queue, after=1)

    assert counts[State.CANCELLED] == 1
    assert findings == []
    assert events
    assert await tell(operator, "ACL", "LOG") == []


async def test_the_rule_on_the_page_lets_the_user_do_nothing_else(url: str, operator: Redis) -> None:
    """Neither other keys nor the server itself."""
    await tell(operator, "ACL", "SETUSER", "penstock", *valkey.documented_rule())

    for command in (
        ["GET", "penstock:x"],
        ["HGET", "other", "x"],
        ["FLUSHALL"],
        ["CONFIG", "SET", "dir", "/"],
    ):
        answer = await tell(operator, "ACL", "DRYRUN", "penstock", *command)
        assert b"permissions" in answer, command
