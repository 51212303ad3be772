"""Fair claims for many tenants: each tenant with jobs gets an equal share, however many jobs others have."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.core.outcomes import Claims

PROBES: Final = 8
"""Tenants without work, as far as is known, that every claim looks at beside those with some."""
Claim = Callable[[str, int], Awaitable[Claims]]


class FairClaims:
    """Whose turn it is, least served first. One for each queue name and each list of tenants.

    A tenant that comes back joins where the others are: it is not paid for the time that it was away.
    """

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._probed = 0

    async def claim(self, tenants: Sequence[str], limit: int, claim: Claim) -> list[tuple[str, Claims]]:
        """Claims of up to `limit` jobs together; `claim` asks for so many of one tenant's.

        Empty ones are among them: they say when the next job is due. An error is raised only where no jobs
        came from others: those are leased, and have to reach their worker.
        """
        known = set(tenants)
        self._served = {name: many for name, many in self._served.items() if name in known}
        quiet = [name for name in tenants if name not in self._served]
        first = self._probed % len(quiet) if quiet else 0
        quiet = quiet[first:] + quiet[:first]
        self._probed = first + min(PROBES, len(quiet))
        answers: list[tuple[str, Claims]] = []
        asked = [*self._served, *quiet[:PROBES]]
        rest = quiet[PROBES:]
        while asked and limit > 0:
            got, error = await self._round(asked, limit, claim)
            answers += got
            if error is not None:
                if any(claims.jobs for _, claims in answers):
                    return answers
                raise error
            limit -= sum(len(claims.jobs) for _, claims in got)
            # Who gave all that was asked for may have more, and takes what others left.
            answered = {name for name, _ in got}
            asked = [name for name in asked if name in self._served or name not in answered]
            if not asked:
                asked, rest = rest[:PROBES], rest[PROBES:]
        return answers

    async def _round(
        self, tenants: Sequence[str], limit: int, claim: Claim
    ) -> tuple[list[tuple[str, Claims]], BaseException | None]:
        floor = min(self._served.values(), default=0)
        # Newcomers before those who are there: else one of a later name would never get in.
        order = sorted(tenants, key=lambda name: (self._served.get(name, floor), name in self._served, name))
        shares = _shares(limit, len(order))
        chosen = [(name, share) for name, share in zip(order, shares, strict=True) if share]
        for name, share in chosen:
            # Before it is asked: another claim may come meanwhile, and is somebody else's turn.
            self._served[name] = self._served.get(name, floor) + share
        asked = await asyncio.gather(*(claim(*each) for each in chosen), return_exceptions=True)
        got: list[tuple[str, Claims]] = []
        error: BaseException | None = None
        for (name, share), answer in zip(chosen, asked, strict=True):
            if isinstance(answer, BaseException):
                error = error or answer
                continue
            got.append((name, answer))
            if len(answer.jobs) < share:
                # Dry for now: where it stood means nothing when it comes back.
                self._served.pop(name, None)
        return got, error


def _shares(limit: int, many: int) -> list[int]:
    each, more = divmod(limit, many)
    return [each + (at < more) for at in range(many)]
