"""What the tests of the producing side share."""

from collections.abc import Callable

import pytest

from penstock.client.persist import Persistence


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between repeated calls, which take no time."""
    taken: list[float] = []
    before = Persistence.__init__

    async def nap(seconds: float) -> None:
        taken.append(seconds)

    def init(
        self: Persistence, tries: int | None = None, patience: float = 30.0, **more: Callable[..., object]
    ) -> None:
        before(self, tries, patience, sleep=nap, uniform=lambda low, high: high, clock=lambda: sum(taken))

    monkeypatch.setattr(Persistence, "__init__", init)
    return taken
