"""The upkeep of all queues of a process: one loop that asks the store which of them have something due."""

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from penstock.core.clocks import STEP_MS
from penstock.core.job import QueueRef
from penstock.maintenance.agenda import Agenda, Visit
from penstock.maintenance.attempts import Attempts
from penstock.maintenance.duties import EVERY_DUTY, QueueDuties, Result
from penstock.maintenance.listening import Listeners
from penstock.maintenance.pruner import EVENTS_AGE, EVENTS_KEPT
from penstock.maintenance.reclaimer import holds_none
from penstock.schedules.ticker import AGAIN, Admission
from penstock.stores.bounds import DUE_LIMIT
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.protocol import Store
from penstock.stores.values import DuePage, Duty

_LOGGER: Final = logging.getLogger("penstock.maintenance")
TICK: Final = 5.0
SWEEP: Final = 300.0
"""Seconds in which every queue is visited once, whatever the store says is due."""
SLOTS: Final = 4
"""Queues that are visited at the same time."""
SOON: Final = 0.2
SELDOM: Final = 4
"""Pruning and trimming rest for so many ticks."""
QUIET: Final = 1.0
"""Seconds for which a queue's relays rest after they were carried, and between two looks at all queues."""
LOOK_FACTOR: Final = 50
"""Where looking at all queues takes long, the next look begins so many times as long after it."""
REMEMBERED: Final = 1_000
"""Queues whose duties are remembered between visits, with what failed in them."""


class MaintenanceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the upkeep of a queue is done. Times are seconds.

    `tick` is how often the store is asked what is due, at least. Within `sweep`, every duty of every queue is
    attempted once, whatever the store says. `limits` are the sizes of the batches that promote and recover.
    """

    tick: float = TICK
    sweep: float = SWEEP
    events_kept: int = EVENTS_KEPT
    events_age: float = EVENTS_AGE
    limits: ClaimLimits = CLAIM_LIMITS


class MaintenanceLoop:
    """Does the upkeep of queues that are `added`, and of all queues of `tenants`. Any number may run.

    The number of its tasks does not grow with the number of queues, and tenants take turns. Schedules fire at
    their instants. Relay entries are carried at once after `nudge`, and soon after they were written.
    """

    def __init__(
        self,
        store: Store,
        options: MaintenanceOptions | None = None,
        *,
        tenants: Callable[[], Awaitable[Sequence[str]]] | None = None,
        slots: int = SLOTS,
        admission: Admission | None = None,
        is_held: Callable[[str], bool] = holds_none,
    ) -> None:
        self._store = store
        self._admission = admission
        self._is_held = is_held
        self._options = options or MaintenanceOptions()
        self._tenants = tenants
        self._last_tenants: Sequence[str] = ()
        self._slots = slots
        self._added: dict[QueueRef, list[MaintenanceOptions]] = {}
        self._kinds: Counter[MaintenanceOptions] = Counter()
        """The options of those queues: few differ, however many queues there are."""
        self._duties: dict[QueueRef, QueueDuties] = {}
        self._attempts = Attempts(_LOGGER)
        self._agenda: Agenda | None = None
        self._listeners: Listeners | None = None
        self._asked: dict[QueueRef, None] = {}
        self._wanted = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._told_at = 0

    # What it is done for

    async def serve(self, queue: QueueRef, options: MaintenanceOptions) -> None:
        """Do the upkeep of this queue too until cancelled; those who call this share one loop."""
        await self.serve_many([(queue, options)])

    async def serve_many(self, queues: Sequence[tuple[QueueRef, MaintenanceOptions]]) -> None:
        """Do the upkeep of these queues too until cancelled."""
        for queue, options in queues:
            self._added.setdefault(queue, []).append(options)
            self._kinds[options] += 1
        if self._running is None:
            self._running = asyncio.create_task(self.run())
        elif self._listeners is not None:
            self._listeners.listen(self._added)
        for queue, _ in queues:
            self.look_at(queue)
        running = self._running
        try:
            await asyncio.wait([running])
            running.result()
        finally:
            for queue, options in queues:
                self._leave(queue, options)
            if self._listeners is not None:
                self._listeners.listen(self._added)
            if not self._added and self._running is running:
                # Another one may begin meanwhile, with a loop of its own.
                self._running = None
                running.cancel()
                await asyncio.wait([running])

    def _leave(self, queue: QueueRef, options: MaintenanceOptions) -> None:
        self._kinds[options] -= 1
        if not self._kinds[options]:
            del self._kinds[options]
        self._added[queue].remove(options)
        if not self._added[queue]:
            del self._added[queue]
            if self._listeners is not None:
                self._listeners.leave(queue)

    def nudge(self, queue: QueueRef) -> None:
        """There are relay entries to carry, known to this process: do not wait for a notification."""
        if self._agenda is not None:
            self._agenda.put(queue, [Duty.RELAY])

    def look_at(self, queue: QueueRef) -> None:
        """Something may have changed in this queue: ask what is due there."""
        self._asked[queue] = None
        self._wanted.set()

    def duties(self, queue: QueueRef) -> QueueDuties:
        """The duties of a queue, with what is remembered of them."""
        found = self._duties.pop(queue, None)
        if found is None:
            options = self._options_of(queue)
            found = QueueDuties(
                self._store,
                queue,
                events_kept=options.events_kept,
                events_age=options.events_age,
                admission=self._admission,
                limits=options.limits,
                is_held=self._is_held,
            )
            if len(self._duties) >= REMEMBERED:
                del self._duties[next(iter(self._duties))]
        self._duties[queue] = found
        return found

    # The loop

    async def run(self) -> None:
        """Keep at it until cancelled."""
        clock = asyncio.get_running_loop().time
        self._wanted = asyncio.Event()
        self._agenda = agenda = Agenda(clock, per_tenant=max(1, self._slots - 1))
        self._listeners = Listeners(self._store, self.look_at, self._attempts, lambda: self._tick)
        try:
            async with asyncio.TaskGroup() as group:
                self._listeners.start(group, self._added)
                group.create_task(self._look())
                group.create_task(self._sweep())
                for _ in range(self._slots):
                    group.create_task(self._visit_all(agenda))
        finally:
            agenda.close()
            if self._agenda is agenda:
                self._agenda = self._listeners = None

    async def _look(self) -> None:
        """Ask for all queues now and then, and for those in between that something is known of."""
        clock = asyncio.get_running_loop().time
        # Processes that start together do not look together.
        await asyncio.sleep(random.uniform(0, min(QUIET, self._tick)))
        next_round = clock()
        while True:
            began = clock()
            if began >= next_round:
                self._asked.clear()
                await self._look_round()
                next_round = clock() + self._rest_after(clock() - began)
            else:
                asked, self._asked = list(self._asked), {}
                await self._look_turns(_by_tenant(asked))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_round):
                    await self._wanted.wait()
            self._wanted.clear()

    def _rest_after(self, took: float) -> float:
        if self._listeners is not None and self._listeners.hear_all(self._added) and self._tenants is None:
            return random.uniform(0.8, 1.2) * self._tick
        # Nothing tells of changes: ask more often, as long as that costs little.
        return min(self._tick, max(QUIET, LOOK_FACTOR * took)) * random.uniform(0.8, 1.2)

    async def _look_round(self) -> None:
        turns = _by_tenant(self._added)
        if self._tenants is not None:
            turns.extend((tenant, None, "") for tenant in await self._known_tenants(self._tenants))
        unreachable = await self._look_turns(turns, is_round=True)
        for tenant, names in unreachable.items():
            about: dict[str, object] = {"tenant": tenant}
            if names:
                self._attempts.failed("reaching some queues", ", ".join(names[:5]), about)
            else:
                self._attempts.over("reaching some queues", about)

    async def _known_tenants(self, list_tenants: Callable[[], Awaitable[Sequence[str]]]) -> Sequence[str]:
        """The tenants; while they cannot be listed those of the last time, whose queues may be there."""
        listed = await self._attempts.attempt("looking for tenants", list_tenants, {})
        if listed is not None:
            self._last_tenants = listed
        return self._last_tenants

    async def _look_turns(
        self, turns: "deque[_Turn]", *, is_round: bool = False
    ) -> Mapping[str, Sequence[str]]:
        """One page after the other; a tenant with many waits for its next until the others had theirs.

        Returns the queues that could not be reached, by each tenant that was answered for. Only a round over
        all queues logs anything: a look at a few does not know whether what failed works again.
        """
        unreachable: dict[str, list[str]] = {}
        while turns:
            tenant, names, after = turns.popleft()
            ask = partial(
                self._store.upkeep.due_queues,
                tenant,
                names,
                within_ms=round(self._horizon * 1000),
                events_kept=self._events_kept,
                after=after,
                limit=DUE_LIMIT,
            )
            about = {"tenant": tenant}
            page = await self._attempts.attempt("looking for due work", ask, about, is_logged=is_round)
            if page is None:
                continue
            unreachable.setdefault(tenant, []).extend(page.unreachable)
            self._plan(tenant, page)
            await self._follow_clock(page.now)
            if page.next is not None:
                turns.append((tenant, None, page.next))
        return unreachable

    def _plan(self, tenant: str, page: DuePage) -> None:
        if self._agenda is None:
            return
        now = asyncio.get_running_loop().time()
        for found in page.queues:
            for duty, at in found.due.items():
                self._agenda.plan(QueueRef(tenant, found.name), duty, now + (at - page.now) / 1000)

    async def _follow_clock(self, now: int) -> None:
        """Visit every queue immediately if the store's clock was set back."""
        back_ms, self._told_at = self._told_at - now, now
        if back_ms > STEP_MS:
            _LOGGER.warning("the store's clock was set back by %d s: following its new time", back_ms // 1000)
            for queue in await self._every_queue():
                if self._agenda is not None:
                    self._agenda.put(queue, EVERY_DUTY)

    async def _visit_all(self, agenda: Agenda) -> None:
        while True:
            visit = await agenda.take()
            try:
                await self._visit(agenda, visit)
            finally:
                agenda.done(visit)

    async def _visit(self, agenda: Agenda, visit: Visit) -> None:
        queue, duties = visit.queue, self.duties(visit.queue)
        clock, tick = asyncio.get_running_loop().time, self._options_of(queue).tick
        if queue not in self._added and not await self._is_there(queue):
            return
        for duty in EVERY_DUTY:
            if duty not in visit.duties:
                continue
            began = clock()
            result = await duties.do(duty)
            agenda.rest(queue, duty, began + _rest(duty, result, tick))
            if result is Result.MORE:
                agenda.plan(queue, duty, clock() + min(SOON, tick))
            elif result is Result.STUCK:
                agenda.plan(queue, duty, clock() + AGAIN)
        if Duty.FIRE in visit.duties:
            # Its next instant may come before the next look at all queues.
            self.look_at(queue)

    async def _is_there(self, queue: QueueRef) -> bool:
        """False for a queue that was deleted since it was listed: the store would make it anew."""
        about: dict[str, object] = {"tenant": queue.tenant, "queue": queue.name}
        found = await self._attempts.attempt(
            "looking for a queue", partial(self._store.queues.find_queue, queue), about
        )
        return found is not None

    async def _sweep(self) -> None:
        """Visit every queue once in a while, spread out over that time."""
        clock = asyncio.get_running_loop().time
        while True:
            began, sweep = clock(), self._least("sweep")
            queues = await self._every_queue()
            step = sweep / max(1, len(queues))
            for number, queue in enumerate(queues):
                await asyncio.sleep(began + (number + random.random()) * step - clock())
                if self._agenda is not None:
                    self._agenda.put(queue, EVERY_DUTY)
            await asyncio.sleep(max(began + sweep - clock(), min(QUIET, sweep)))

    async def _every_queue(self) -> list[QueueRef]:
        """All queues, those of the tenants in turn."""
        lists = [list(self._added)]
        tenants = self._tenants
        if tenants is not None:
            for tenant in await self._known_tenants(tenants):
                list_queues = partial(self._store.queues.list_queues, tenant)
                infos = await self._attempts.attempt("listing queues", list_queues, {"tenant": tenant})
                lists.append([info.queue for info in infos or ()])
        longest = max(map(len, lists))
        return [each[at] for at in range(longest) for each in lists if at < len(each)]

    # MaintenanceOptions of the queues

    def _options_of(self, queue: QueueRef) -> MaintenanceOptions:
        return self._added.get(queue, [self._options])[-1]

    def _least(self, name: str) -> float:
        return min(float(getattr(options, name)) for options in self._kinds or [self._options])

    @property
    def _tick(self) -> float:
        return self._least("tick")

    @property
    def _horizon(self) -> float:
        """Seconds to look ahead: further than to the next look."""
        return 1.5 * self._tick + QUIET

    @property
    def _events_kept(self) -> int:
        return int(self._least("events_kept"))


_Turn = tuple[str, list[str] | None, str]


def _by_tenant(queues: Iterable[QueueRef]) -> "deque[_Turn]":
    """Looks at these queues, as few as can be."""
    names: dict[str, list[str]] = {}
    for queue in queues:
        names.setdefault(queue.tenant, []).append(queue.name)
    return deque(
        (tenant, each[start : start + DUE_LIMIT], "")
        for tenant, each in names.items()
        for start in range(0, len(each), DUE_LIMIT)
    )


def _rest(duty: Duty, result: Result, tick: float) -> float:
    """Seconds until a duty of a queue is worth another look."""
    if result is Result.MORE:
        return 0.0
    if duty is Duty.FIRE:
        return AGAIN if result is not Result.DONE else 0.0
    if duty is Duty.RELAY:
        return min(QUIET, tick) if result is Result.DONE else tick
    return SELDOM * tick if duty in (Duty.PRUNE, Duty.FOLD, Duty.TRIM) else 0.8 * tick
