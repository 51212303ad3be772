"""Single calls that are joined: one at a time, or in halves while two may be under way."""

import asyncio
from collections.abc import Sequence

from penstock.client.coalesce import CROWD, Coalescer


class Slow:
    """Answers each call when it is let go, and keeps what was asked."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self._gates: list[asyncio.Event] = []

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        gate = asyncio.Event()
        self._gates.append(gate)
        await gate.wait()
        return [-item for item in items]

    def let_go(self, number: int) -> None:
        self._gates[number].set()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_arrives_while_a_call_is_under_way_goes_out_as_the_next() -> None:
    slow = Slow()
    coalescer = Coalescer[int, int](slow)
    answers = [coalescer.submit(1)]
    await _turns()
    answers += [coalescer.submit(2), coalescer.submit(3)]
    await _turns()
    assert slow.calls == [[1]]

    slow.let_go(0)
    await _turns()
    assert slow.calls == [[1], [2, 3]]

    slow.let_go(1)
    assert await asyncio.gather(*answers) == [-1, -2, -3]


async def test_a_crowd_is_split_where_two_calls_may_be_under_way() -> None:
    slow = Slow()
    coalescer = Coalescer[int, int](slow, ahead=2)
    answers = [coalescer.submit(item) for item in range(CROWD)]
    await _turns()
    assert slow.calls == [list(range(CROWD // 2)), list(range(CROWD // 2, CROWD))]

    # Whoever is answered goes on while the other half is still under way.
    slow.let_go(0)
    await _turns()
    answers += [coalescer.submit(item) for item in range(100, 110)]
    await _turns()
    assert slow.calls[2:] == [list(range(100, 110))]

    slow.let_go(1)
    slow.let_go(2)
    await coalescer.flush()
    assert [answer.result() for answer in answers[-10:]] == [-item for item in range(100, 110)]


async def test_a_few_calls_are_not_split() -> None:
    slow = Slow()
    coalescer = Coalescer[int, int](slow, ahead=2)
    answers = [coalescer.submit(item) for item in range(CROWD - 1)]
    await _turns()
    assert len(slow.calls) == 1

    slow.let_go(0)
    await asyncio.gather(*answers)


async def test_what_is_submitted_the_moment_a_call_ends_is_sent() -> None:
    slow = Slow()
    coalescer = Coalescer[int, int](slow, ahead=2)
    first = coalescer.submit(1)
    again: list[asyncio.Future[int]] = []
    first.add_done_callback(lambda _: again.append(coalescer.submit(2)))
    await _turns()
    slow.let_go(0)
    await _turns()
    assert slow.calls == [[1], [2]]

    slow.let_go(1)
    assert await again[0] == -2
