"""The duties of a queue that no worker has for a job of its own, each at its own rhythm."""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar

from penstock.core.errors import PenstockError
from penstock.core.job import QueueRef
from penstock.core.reasons import Reasons
from penstock.scheduler.promoter import Promoter
from penstock.scheduler.pruner import EVENTS_AGE, EVENTS_KEPT, Pruner, Trimmer
from penstock.scheduler.reclaimer import Reclaimer
from penstock.scheduler.relayer import relay
from penstock.scheduler.ticker import Admission, Ticker
from penstock.stores.protocol import Store
from penstock.stores.values import Topic

_LOGGER: Final = logging.getLogger("penstock.scheduler")
ROUNDS: Final = 20
"""Batches per duty and tick; what is left then is done a moment later."""
SOON: Final = 0.2
SHORTEST: Final = 0.01
SELDOM: Final = 4
"""Pruning and trimming can wait: they are done every so many ticks."""
QUIET: Final = 1.0
"""Seconds between two looks that bells ask for: a busy queue rings all the time."""
QUIET_FACTOR: Final = 20
"""Where a look at the schedules takes long, so many times as long is waited for the next."""

T = TypeVar("T")


class Duty(Protocol):
    """Something that is done in bounded batches."""

    async def tick(self) -> bool:
        """Do one batch; True when there may be more."""
        ...


class Scheduler:
    """Runs every duty of one queue, at least each `tick` seconds. Every worker has one; none is the leader.

    Schedules fire at their instants. Relays are carried at once after `nudge`, and soon after a bell. A duty
    that fails is logged, keeps no other from its work, and is met again.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        *,
        tick: float,
        events_kept: int = EVENTS_KEPT,
        events_age: float = EVENTS_AGE,
        admission: Admission | None = None,
    ) -> None:
        self._store = store
        self._queue = queue
        self._tick = tick
        self._ticker = Ticker(store, queue, admission)
        self._often: Mapping[str, Duty] = {
            "promoting": Promoter(store, queue),
            "recovering": Reclaimer(store, queue),
        }
        self._seldom: Mapping[str, Duty] = {
            "pruning": Pruner(store, queue),
            "trimming": Trimmer(store, queue, kept=events_kept, age=events_age),
        }
        self._relays_wait = asyncio.Event()
        self._schedules_changed = asyncio.Event()
        self._failing: defaultdict[str, Reasons] = defaultdict(Reasons)

    async def run(self) -> None:
        """Keep at it until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_house())
            group.create_task(self._keep_time())
            group.create_task(self._carry())
            for topic, woken in (
                (Topic.READY, (self._schedules_changed, self._relays_wait)),
                (Topic.ENDED, (self._relays_wait,)),
            ):
                group.create_task(self._listen(topic, *woken))

    def nudge(self) -> None:
        """There are relays to carry, known to this process: do not wait for a bell."""
        self._relays_wait.set()

    async def tick(self) -> bool:
        """Do every duty once; True when one of them has more to do."""
        more = await self._do(self._often)
        more = await self._attempt("firing schedules", self._ticker.attend) == 0.0 or more
        await self.relay()
        return await self._do(self._seldom) or more

    async def relay(self) -> None:
        """Carry what waits for other queues, until there is nothing more; bounded like every duty."""
        for _ in range(ROUNDS):
            # What is carried within the queue can end jobs, and leave more to carry.
            if not await self._attempt("relaying", partial(relay, self._store, self._queue)):
                return
        self.nudge()

    # The rhythms

    async def _keep_house(self) -> None:
        # Workers that start together do not tick together.
        await asyncio.sleep(random.uniform(0, self._tick))
        ticks = 0
        while True:
            more = await self._do(self._often)
            if ticks % SELDOM == 0:
                more = await self._do(self._seldom) or more
            if more:
                await asyncio.sleep(min(SOON, self._tick))
            else:
                ticks += 1
                await asyncio.sleep(random.uniform(0.8, 1.2) * self._tick)

    async def _keep_time(self) -> None:
        await asyncio.sleep(random.uniform(0, min(QUIET, self._tick)))
        clock = asyncio.get_running_loop().time
        look, next_look, quiet_until = True, 0.0, 0.0
        while True:
            began = clock()
            if look:
                next_look = began + random.uniform(0.8, 1.2) * self._tick
            rest = await self._attempt("firing schedules", partial(self._ticker.attend, look=look))
            if look:
                quiet_until = began + min(self._tick, QUIET_FACTOR * (clock() - began))
            if rest is None:
                rest = min(QUIET, self._tick)
            wait = min(rest, next_look - clock())
            is_asked = await _rung(self._schedules_changed, max(wait, SHORTEST))
            if is_asked and clock() < quiet_until:
                next_look, is_asked = min(next_look, quiet_until), False
            look = is_asked or clock() >= next_look

    async def _carry(self) -> None:
        await asyncio.sleep(random.uniform(0, min(QUIET, self._tick)))
        while True:
            # Cleared before the work: what comes during it is looked at once more.
            self._relays_wait.clear()
            await self.relay()
            await _rung(self._relays_wait, random.uniform(0.8, 1.2) * self._tick)

    async def _listen(self, topic: Topic, *woken: asyncio.Event) -> None:
        while True:
            await self._attempt("listening", partial(self._heard, topic, woken))
            await asyncio.sleep(min(QUIET, self._tick))

    async def _heard(self, topic: Topic, woken: tuple[asyncio.Event, ...]) -> None:
        """Hear one ring. Then nobody listens for a while: every worker of a busy queue would hear of each
        call of every other."""
        async with self._store.bell(self._queue, topic) as bell:
            # It may have rung since the last time.
            for each in woken:
                each.set()
            while not await bell.wait(60.0):
                pass
        for each in woken:
            each.set()

    # How a duty is done

    async def _do(self, duties: Mapping[str, Duty]) -> bool:
        more = False
        for name, duty in duties.items():
            for _ in range(ROUNDS):
                if not await self._attempt(name, duty.tick):
                    break
            else:
                more = True
        return more

    async def _attempt(self, duty: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None when it failed, which is told when it begins and when it is over."""
        try:
            answer = await work()
        except PenstockError as error:
            if self._failing[duty].is_new(error):
                _LOGGER.warning("%s failed, will repeat: %s", duty, error, extra=self._about)
        except Exception as error:
            if self._failing[duty].is_new(error):
                _LOGGER.exception("%s failed, will repeat", duty, extra=self._about)
        else:
            if self._failing[duty].over():
                _LOGGER.info("%s works again", duty, extra=self._about)
            return answer
        return None

    @property
    def _about(self) -> dict[str, object]:
        return {"tenant": self._queue.tenant, "queue": self._queue.name}


async def _rung(event: asyncio.Event, seconds: float) -> bool:
    """True as soon as it is set, and then it is not any more; False after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
