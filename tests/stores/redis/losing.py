"""Cancels that get lost in the client, as they do in Python 3.11 when one comes together with an answer."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from redis.asyncio.connection import AbstractConnection


class LostCancel:
    """Holds the client at its n-th sending until a cancel comes, and loses that one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
        self.reached = asyncio.Event()
        self._left = nth
        send = AbstractConnection.send_packed_command

        async def losing(connection: AbstractConnection, *args: Any, **options: Any) -> None:
            await send(connection, *args, **options)
            self._left -= 1
            if not self._left:
                self.reached.set()
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

        monkeypatch.setattr(AbstractConnection, "send_packed_command", losing)
