"""The keys that a claim serves by turns, and their lanes after it."""

import heapq

import msgspec

from penstock.core.limits import Rate


class Lane(msgspec.Struct):
    """A key with waiting jobs and a free slot. `slots` and `waiting` are how many are left."""

    key: str
    turn: int
    number: int
    stride: int
    slots: int
    waiting: int
    arrival_us: int
    held_until: int | None = None

    @property
    def is_ready(self) -> bool:
        """True while the key could be served again, now or when its rate allows it."""
        return self.slots > 0 and self.waiting > 0


class Served(msgspec.Struct):
    """The keys in the order they were served, the lanes this changed, and the queue's numbers if any was."""

    order: list[str]
    lanes: list[Lane]
    virtual: int | None = None
    numbered: int | None = None


def serve(lanes: list[Lane], limit: int, *, numbered: int, rate: Rate | None, now_us: int) -> Served:
    """Serve the lane whose turn is the lowest, again and again; of equal ones the one numbered first."""
    ready = [(lane.turn, lane.number, lane) for lane in lanes if lane.is_ready]
    heapq.heapify(ready)
    order: list[str] = []
    changed: dict[str, Lane] = {}
    virtual = None
    while ready and len(order) < limit:
        lane = heapq.heappop(ready)[2]
        virtual = lane.turn
        numbered += 1
        order.append(lane.key)
        changed[lane.key] = lane
        lane.turn, lane.number = lane.turn + lane.stride, numbered
        lane.slots, lane.waiting = lane.slots - 1, lane.waiting - 1
        if rate is not None:
            lane.arrival_us = rate.after(lane.arrival_us, now_us, 1)
            if not rate.tokens(lane.arrival_us, now_us):
                lane.held_until = -(-rate.opens_us(lane.arrival_us) // 1000)
        if lane.is_ready and lane.held_until is None:
            heapq.heappush(ready, (lane.turn, lane.number, lane))
    return Served(order, list(changed.values()), virtual, numbered)
