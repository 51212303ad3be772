"""Workers and schedulers hand the limits that they were given to the store, and refuse others."""

from typing import Any

import pytest

from penstock import Penstock
from penstock.core.errors import OptionError
from penstock.core.outcomes import Claims
from penstock.stores.claim_limits import ClaimLimits
from tests.kit.intercepted import InterceptedStore

FIELDS = ClaimLimits.__struct_fields__


class Listening(InterceptedStore):
    """A store that remembers the limits that it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[object] = []

    async def claim(self, *args: Any, **given: Any) -> Claims:
        self.claims.append(given.get("limits"))
        return await self.real.moves.claim(*args, **given)


async def test_a_worker_claims_with_the_limits_that_it_was_given() -> None:
    store = Listening()
    app = Penstock("memory://")
    app.queue("mail")
    with app.using(store):
        await app.worker(burst=True, claim_scan=7, promote_limit=8, recover_limit=9).run()

    assert set(store.claims) == {ClaimLimits(claim_scan=7, promote_limit=8, recover_limit=9)}


def test_the_upkeep_of_a_worker_has_the_same_limits() -> None:
    app = Penstock("memory://")
    app.queue("mail")
    (worker,) = app.worker(promote_limit=8, recover_limit=9)._workers

    assert worker.upkeep_options.limits == ClaimLimits(promote_limit=8, recover_limit=9)  # type: ignore[attr-defined]


@pytest.mark.parametrize("found", [0, 10_001, True, "3"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_limit_out_of_its_bounds_is_refused_and_named(field: str, found: object) -> None:
    app = Penstock("memory://")
    app.queue("mail")

    with pytest.raises(OptionError) as caught:
        app.worker(**{field: found})  # type: ignore[arg-type]

    assert str(caught.value) == f"{field}: found {found!r}, wanted a whole number from 1 to 10000"


@pytest.mark.parametrize("field", ["promote_limit", "recover_limit"])
def test_a_scheduler_refuses_the_same_limits(field: str) -> None:
    app = Penstock("memory://")
    app.queue("mail")

    with pytest.raises(OptionError, match=f"{field}: found 10001, wanted a whole number from 1 to 10000"):
        app.scheduler(**{field: 10_001})  # type: ignore[arg-type]
