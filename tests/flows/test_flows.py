"""Flows as their producers and handlers see them."""

import asyncio
from typing import Any

import pytest

from penstock import (
    ConfigError,
    DuplicateJobError,
    Enqueued,
    Fail,
    Flow,
    FlowCounts,
    FlowError,
    JobContext,
    JobEndedError,
    JobRef,
    NewJob,
    OptionError,
    Penstock,
    PenstockError,
    QueueFullError,
    QueueRef,
    Refused,
    SendNext,
    StaleLeaseError,
    State,
    StoreUnavailableError,
    Task,
    chain,
    group,
)
from penstock.client.client import Client
from penstock.client.flow_plan import plan
from penstock.client.relay import relay
from penstock.core import decide
from penstock.core.limits import Declaration, Mode
from penstock.stores.protocol import Store
from penstock.stores.values import Spawn
from penstock.testing import job_context
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE

Add = Task[..., [int], int]


def tasks(app: Penstock) -> tuple[Add, Task[..., [], int], Task[..., [], Any]]:
    """A part that returns its number or fails, a sum of the parts, and one that tells of them."""

    @app.queue("parts").task(max_attempts=1)
    async def part(number: int) -> int:
        if number < 0:
            raise Fail("a negative part")
        return number

    @app.queue("sums").task(max_attempts=1)
    async def total(ctx: JobContext) -> int:
        return sum(child.result or 0 for child in await ctx.children() if child.succeeded)

    @app.queue("sums").task(max_attempts=1)
    def told(ctx: JobContext) -> Any:
        return [[str(child.state), child.result] for child in ctx.blocking.children()]

    return part, total, told


async def work(app: Penstock, rounds: int = 6) -> None:
    for _ in range(rounds):
        await app.worker(burst=True).run()


async def test_a_job_runs_after_those_it_waits_for_and_sees_their_results(app: Penstock) -> None:
    part, total, told = tasks(app)
    async with app:
        flow = app.flow()
        parts = [flow.add(part.call(number)) for number in range(3)]
        first = flow.add(total.call(), after=parts[:2])
        last = flow.add(told.call(), after=[first, parts[2]])
        handle = await flow.enqueue()

        assert await handle.status() == FlowCounts(waiting=5)
        assert [await handle[node].status() for node in (parts[0], first, last)] == [
            State.PENDING,
            State.BLOCKED,
            State.BLOCKED,
        ]
        await work(app)

        assert await handle[first].result(timeout=PATIENCE) == 1
        assert await handle.result(timeout=PATIENCE) == [["completed", 1], ["completed", 2]]
        assert await handle.status() == FlowCounts(completed=5)
        assert (handle.sinks[0].id, len(handle.jobs)) == (handle[last].id, 5)


async def test_a_running_worker_takes_a_flow_from_queue_to_queue_without_waiting_for_ticks(
    app: Penstock,
) -> None:
    part, total, _ = tasks(app)
    async with app:
        pool = app.worker(tick=3_600, poll=3_600)
        working = asyncio.create_task(pool.run())
        handle = await chain(part.call(1), total.call(), total.call(), part.call(7)).enqueue()

        assert await handle.result(timeout=PATIENCE) == 7
        pool.stop()
        await working


async def test_chains_and_groups_are_flows_and_steps(app: Penstock) -> None:
    part, total, told = tasks(app)
    async with app:
        steps = group([part.call(1), chain(part.call(5), total.call())], then=total.call())
        handle = await chain(part.call(4), steps, told.call()).enqueue()
        await work(app)

        assert await handle.result(timeout=PATIENCE) == [["completed", 6]]
        several = await group([part.call(1), part.call(2)]).enqueue()
        await work(app, 1)
        assert await several.result(timeout=PATIENCE) == [1, 2]


@pytest.mark.parametrize(
    ("policy", "ends", "counts"),
    [
        ("fail", State.FAILED, FlowCounts(completed=1, failed=2)),
        ("ignore", State.COMPLETED, FlowCounts(completed=2, failed=1)),
        ("wait", State.BLOCKED, FlowCounts(waiting=1, completed=1, failed=1)),
    ],
)
async def test_the_policy_says_what_a_child_without_success_means(
    app: Penstock, policy: Any, ends: State, counts: FlowCounts
) -> None:
    part, _, told = tasks(app)
    async with app:
        flow = app.flow()
        parts = [flow.add(part.call(number)) for number in (1, -1)]
        last = flow.add(told.call(), after=parts, child_policy=policy)
        handle = await flow.enqueue()
        await work(app)

        assert await handle[last].status() is ends
        assert await handle.status() == counts
        if ends is State.COMPLETED:
            assert await handle.result() == [["completed", 1], ["failed", None]]
        if ends is State.FAILED:
            with pytest.raises(JobEndedError, match="CHILD_FAILED"):
                await handle.result()


async def test_a_parent_that_waits_goes_on_after_the_redrive_of_its_child(app: Penstock) -> None:
    fails = [True]

    @app.task(max_attempts=1)
    async def shaky() -> str:
        if fails.pop() if fails else False:
            raise Fail("once")
        return "fine"

    _, _, told = tasks(app)
    async with app:
        flow = app.flow()
        child = flow.add(shaky.call())
        flow.add(told.call(), after=[child], child_policy="wait")
        handle = await flow.enqueue()
        await work(app)
        ref = QueueRef(app.tenant, "default")
        await app.store.moves.redrive(ref, [handle[child].id])
        await work(app)

        assert await handle.result(timeout=PATIENCE) == [["completed", "fine"]]


async def test_cycles_and_foreign_nodes_are_refused_and_nothing_is_enqueued(app: Penstock) -> None:
    part, total, _ = tasks(app)
    async with app:
        flow = app.flow()
        first = flow.add(part.call(1))
        second = flow.add(total.call(), after=[first])
        first.after(second)
        with pytest.raises(FlowError, match="cycle"):
            await flow.enqueue()
        with pytest.raises(FlowError, match="not part of this flow"):
            app.flow().add(part.call(1), after=[first])
        with pytest.raises(FlowError, match="is empty"):
            await app.flow().enqueue()
        other = Penstock("memory://").by_name("x")
        with pytest.raises(FlowError, match="another app"):
            await chain(part.call(1), other.call(a=1)).enqueue()
        named = app.flow("both")
        named.add(part.call(1))
        named.add(part.call(2))
        with pytest.raises(FlowError, match="has a name"):
            await named.enqueue()

        assert sum((await app.queue("parts").counts()).values()) == 0


def test_a_long_cycle_is_found_in_bounded_time() -> None:
    app = Penstock("memory://")
    call = app.by_name("x").call
    flow = Flow()
    nodes = [flow.add(call())]
    for _ in range(9_999):
        nodes.append(flow.add(call(), after=nodes[-3:]))
    nodes[0].after(nodes[-1])

    with pytest.raises(FlowError, match="cycle"):
        plan(flow, lambda queue: "x")
    with pytest.raises(FlowError, match="at most 10000 jobs"):
        flow.add(call())


@pytest.mark.parametrize(
    "options", [{"id": "x"}, {"idempotency_key": "x"}, {"unique": "live"}, {"throttle": 1}]
)
def test_jobs_that_another_could_stand_for_are_not_for_flows(options: Any) -> None:
    app = Penstock("memory://")
    part, _, _ = tasks(app)

    with pytest.raises(OptionError, match="none in a flow"):
        app.flow().add(part.options(**options).call(1))
    with pytest.raises(OptionError, match="child_policy"):
        app.flow().add(part.call(1), child_policy="maybe")  # type: ignore[arg-type]


async def test_a_flow_survives_the_death_of_its_producer(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, total, _ = tasks(app)

    async def dies(self: Client, queue: str, /) -> None:
        raise StoreUnavailableError("killed")

    async with app:
        monkeypatch.setattr(Client, "carry", dies)
        flow = app.flow()
        last = flow.add(total.call(), after=[flow.add(part.call(number)) for number in (1, 2)])
        handle = await flow.enqueue()
        assert await handle.status() == FlowCounts(waiting=3)
        assert sum((await app.queue("parts").counts()).values()) == 0

        while await relay(app.store, QueueRef(app.tenant, "sums")):
            continue
        await work(app)

        assert await handle[last].result(timeout=PATIENCE) == 3


class _LosesTheFirstReply(InterceptedStore):
    lost = 0

    async def enqueue(
        self, queue: QueueRef, jobs: Any, spawns: Any = (), mode: Any = None
    ) -> list[Enqueued | Refused]:
        answers = await self.real.moves.enqueue(queue, jobs, spawns, mode)
        if spawns and not self.lost:
            self.lost += 1
            raise StoreUnavailableError("the connection went away")
        return answers


async def test_a_lost_reply_makes_no_second_flow() -> None:
    app = Penstock(store=_LosesTheFirstReply())
    part, total, _ = tasks(app)
    async with app:
        await group([part.call(1), part.call(2)], then=total.call()).enqueue()

        assert (await app.queue("parts").counts())[State.PENDING] == 2
        assert (await app.queue("sums").counts())[State.BLOCKED] == 1


async def test_a_flow_is_taken_in_whole_or_not_at_all(app: Penstock) -> None:
    part, _, _ = tasks(app)
    tight = app.queue("tight", max_length=1)

    @tight.task
    async def end() -> None: ...

    async with app:
        await end.enqueue()
        with pytest.raises(QueueFullError):
            await group([part.call(1), part.call(2)], then=end.call()).enqueue()

        assert sum((await app.queue("parts").counts()).values()) == 0
        assert (await tight.counts())[State.PENDING] == 1


async def test_a_whole_flow_is_cancelled(app: Penstock) -> None:
    part, total, told = tasks(app)
    async with app:
        flow = app.flow()
        done = flow.add(part.call(1))
        slow = flow.add(part.options(delay=60).call(2))
        middle = flow.add(total.call(), after=[done, slow])
        flow.add(told.call(), after=[middle])
        handle = await flow.enqueue()
        await work(app, 2)

        assert await handle.cancel() == 3
        await work(app, 2)

        assert await handle.status() == FlowCounts(completed=1, cancelled=3)
        assert await handle.cancel() == 0


async def test_a_deleted_job_is_gone_once_all_that_waited_for_it_have_ended(app: Penstock) -> None:
    part, total, _ = tasks(app)
    async with app:
        flow = app.flow()
        late = flow.add(part.options(delay=60).call(1))
        parents = [flow.add(total.call(), after=[late]) for _ in range(2)]
        handle = await flow.enqueue()
        for parent in parents:
            await handle[parent].cancel()
        await app.queue(handle[late].queue).purge(["delayed"])

        assert await handle.status() == FlowCounts(cancelled=2, gone=1)


async def test_the_tree_shows_what_waits_for_what(app: Penstock) -> None:
    part, total, told = tasks(app)
    async with app:
        flow = app.flow()
        shared = flow.add(part.call(1))
        left = flow.add(total.call(), after=[shared])
        right = flow.add(total.call(), after=[shared])
        last = flow.add(told.call(), after=[left, right])
        handle = await flow.enqueue()
        await app.worker(["parts"], burst=True).run()
        (tree,) = await handle.tree()

    assert (tree.ref, tree.task, tree.state) == (JobRef("sums", handle[last].id), "told", State.BLOCKED)
    assert [child.ref.id for child in tree.children] == [handle[left].id, handle[right].id]
    assert [below.task for child in tree.children for below in child.children] == ["part", "part"]


async def test_handlers_add_children_that_their_parent_waits_for(app: Penstock) -> None:
    part, _, _ = tasks(app)

    @app.queue("splits").task
    async def split(ctx: JobContext, many: int) -> str:
        handles = await ctx.spawn(*(part.call(number) for number in range(many)))
        assert len({handle.id for handle in handles}) == many
        return "split"

    @app.queue("splits").task
    def split_here(ctx: JobContext, many: int) -> None:
        ctx.blocking.spawn(*(part.options(id=f"{ctx.id}-{number}").call(number) for number in range(many)))

    @app.queue("sums").task
    async def count(ctx: JobContext) -> int:
        return len(await ctx.children())

    async with app:
        flow = app.flow()
        flow.add(count.call(), after=[flow.add(split.call(5)), flow.add(split_here.call(3))])
        handle = await flow.enqueue()
        await work(app)

        assert await handle.result(timeout=PATIENCE) == 10
        assert (await app.queue("parts").counts())[State.COMPLETED] == 8
        (tree,) = await handle.tree()
        assert len(tree.children) == 10


async def test_a_job_that_runs_again_spawns_jobs_with_ids_once(app: Penstock) -> None:
    part, total, _ = tasks(app)

    @app.queue("splits").task(max_attempts=3, backoff=[0.001])
    async def split(ctx: JobContext) -> None:
        await ctx.spawn(part.options(id=f"{ctx.id}-1").call(1))
        if not ctx.is_last_attempt:
            raise ValueError("again")

    async with app:
        flow = app.flow()
        flow.add(total.call(), after=[flow.add(split.call())])
        handle = await flow.enqueue()
        for _ in range(20):
            await app.worker(burst=True).run()
            await app.store.clock.advance_clock(1_000)

        assert await handle.result(timeout=PATIENCE) == 1
        assert (await app.queue("parts").counts())[State.COMPLETED] == 1


async def test_a_lost_lease_spawns_nothing(app: Penstock) -> None:
    part, _, _ = tasks(app)
    said: list[str] = []

    @app.queue("splits").task(max_attempts=1)
    async def split(ctx: JobContext) -> None:
        try:
            await app.store.clock.advance_clock(3_600_001)
            leases = await app.store.reads.expired(QueueRef(app.tenant, "splits"))
            expiries = [decide.expire(lease, lambda a, b: a) for lease in leases]
            await app.store.moves.expire(QueueRef(app.tenant, "splits"), expiries)
            await ctx.spawn(part.call(1))
        # Where the worker sees it first, it stops the handler.
        except (StaleLeaseError, asyncio.CancelledError) as error:
            said.append(repr(error))
            raise

    async with app:
        await split.enqueue()
        await app.worker(burst=True).run()

        assert len(said) == 1
        assert sum((await app.queue("parts").counts()).values()) == 0


async def test_a_job_that_is_to_be_cancelled_spawns_nothing_and_ends(app: Penstock) -> None:
    part, total, _ = tasks(app)

    @app.queue("splits").task(max_attempts=1)
    async def split(ctx: JobContext) -> None:
        await app.job(ctx.queue, ctx.id).cancel()
        await ctx.spawn(part.call(1))

    async with app:
        handle = await chain(split.call(), total.call()).enqueue()
        await work(app)

        assert sum((await app.queue("parts").counts()).values()) == 0
        assert await handle.status() == FlowCounts(cancelled=1, failed=1)


async def test_ctx_blocking_is_for_plain_functions(app: Penstock) -> None:
    part, _, _ = tasks(app)
    said: list[str] = []

    @app.task
    async def wrong(ctx: JobContext) -> None:
        for ask in (ctx.blocking.children, lambda: ctx.blocking.spawn(part.call(1))):
            with pytest.raises(ConfigError, match="plain functions"):
                ask()
        with pytest.raises(OptionError, match="told apart by its id"):
            await ctx.spawn(part.options(unique="live").call(1))
        said.append("done")

    async with app:
        await wrong.enqueue()
        await app.worker(burst=True).run()
    with pytest.raises(PenstockError, match="not of a running job"):
        await job_context().children()

    assert said == ["done"]


async def test_middleware_sees_every_job_of_a_flow(app: Penstock) -> None:
    part, total, _ = tasks(app)
    seen: list[str] = []

    async def note(new: NewJob, queue: QueueRef, call_next: SendNext) -> Enqueued | Refused:
        seen.append(f"{queue.name} {new.task}")
        if new.payload == b'{"number":13}':
            return Enqueued(new.id, False, None)
        return await call_next(new)

    app.middleware(enqueue=note)
    async with app:
        await chain(part.call(1), total.call()).enqueue()
        with pytest.raises(FlowError, match="held back a job of 'part'"):
            await chain(part.call(13), total.call()).enqueue()

    assert seen[:2] == ["parts part", "sums total"]


async def test_a_named_flow_is_there_once(app: Penstock) -> None:
    part, total, _ = tasks(app)
    async with app:
        for number in range(2):
            flow = app.flow("nightly")
            flow.add(total.call(), after=[flow.add(part.call(number))])
            if number:
                with pytest.raises(DuplicateJobError, match="'nightly'"):
                    await flow.enqueue()
            else:
                await flow.enqueue()

        assert sum((await app.queue("parts").counts()).values()) == 1


async def test_a_job_that_can_never_be_taken_in_ends_for_those_who_wait(unopened: Store) -> None:
    """Its queue got keys after the flow was sent and before it was carried over."""
    store = unopened
    await store.open()
    try:
        home, other = QueueRef("default", "home"), QueueRef("default", "other")
        child, parent = JobRef("other", "c"), JobRef("home", "p")
        new = NewJob(id="p", nonce="n", task="t", payload=b"{}", awaits=(child,))
        below = NewJob(id="c", nonce="n", task="t", payload=b"{}", parents=(parent,))
        await store.moves.enqueue(home, [new], [Spawn("other", below)])
        await store.queues.declare(other, Declaration(mode=Mode.KEYED))

        assert await relay(store, home) == 1
        (job,) = await store.reads.get(home, ["p"])
        assert job is not None
        assert (job.state, job.reason) == (State.FAILED, "CHILD_FAILED")
    finally:
        await store.close()
