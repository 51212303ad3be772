"""Nodes of a cluster that cannot be reached: a failed call notices one, and the background tries it again."""

import asyncio
import random
from typing import Final

from penstock.core.retry_pause import RetryPause
from penstock.stores.redis.address import Address, Target
from penstock.stores.redis.connection import ReplyError, connect

_PAUSE: Final = RetryPause(0.1, 2.0)


class UnreachableNodes:
    """Tells which nodes are away, so that no call waits for one of them.

    A call that failed makes a node suspect. It is away when a new connection to it fails as well, and until
    one succeeds.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._errors: dict[Address, str] = {}
        self._probes: dict[Address, asyncio.Task[None]] = {}
        self._is_closed = False

    def suspect(self, address: Address) -> None:
        """Find out whether the node is away; a call to it has failed."""
        if address not in self._probes and not self._is_closed:
            self._probes[address] = asyncio.create_task(self._probe(address))

    def error(self, address: Address) -> str | None:
        """Why the node cannot be reached; None when it is not known to be away."""
        return self._errors.get(address)

    async def close(self) -> None:
        """Try no more."""
        self._is_closed = True
        probes = list(self._probes.values())
        for probe in probes:
            probe.cancel()
        if probes:
            await asyncio.wait(probes)

    async def _probe(self, address: Address) -> None:
        failures = 0
        try:
            while True:
                try:
                    connection = await connect(self._target, address)
                except (OSError, ReplyError) as error:
                    self._errors[address] = f"{address} is away: {error}"
                    failures = min(failures + 1, 10)
                else:
                    connection.close()
                    return
                await asyncio.sleep(_PAUSE.after(failures, random.uniform))
        finally:
            self._errors.pop(address, None)
            self._probes.pop(address, None)
