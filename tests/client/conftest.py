"""What the tests of the producing side share."""

from collections.abc import Callable

import pytest

from penstock.client.retrying import RetryingCaller


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between repeated calls, which take no time."""
    taken: list[float] = []
    before = RetryingCaller.__init__

    async def nap(seconds: float) -> None:
        taken.append(seconds)

    def init(
        self: RetryingCaller,
        tries: int | None = None,
        retry_timeout: float = 30.0,
        **more: Callable[..., object],
    ) -> None:
        before(
            self, tries, retry_timeout, sleep=nap, uniform=lambda low, high: high, clock=lambda: sum(taken)
        )

    monkeypatch.setattr(RetryingCaller, "__init__", init)
    return taken
