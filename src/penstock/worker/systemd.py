"""Notifications to systemd: a datagram to the socket that it names in the environment."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_ABSTRACT: Final = "@"
"""Stands for the NUL that the name of an abstract socket begins with."""


class SystemdNotifier:
    """Tells systemd how the service is; for units of `Type=notify`, and those with `WatchdogSec=`."""

    def __init__(self, address: str, watchdog_seconds: float | None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith(_ABSTRACT) else address
        self.watchdog_seconds = watchdog_seconds
        """How often systemd wants a sign of life, or else ends the service; None where it does not."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "SystemdNotifier | None":
        """What this environment asks for; None where no socket is named."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", _ABSTRACT)):
            return None
        return cls(address, _watchdog_seconds(environ))

    def send(self, line: str) -> None:
        """Send one assignment such as READY=1. What cannot be sent at once is lost: nobody waits for it."""
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto(line.encode(), self._address)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        # The time is meant for another process of the service.
        return None
    try:
        seconds = int(environ.get("WATCHDOG_USEC", "")) / 1_000_000
    except ValueError:
        return None
    return seconds if seconds > 0 else None
