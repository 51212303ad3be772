"""From permissions to a confined process: `prepare` in the parent, `apply` in the child."""

from collections.abc import Collection
from typing import Literal

import msgspec

from penstock.sandbox.permissions import Permissions

Mode = Literal["strict", "best-effort"]


class Plan(msgspec.Struct, frozen=True):
    """What will be done to a child, worked out and tried. Plain data: it may be sent to a fork server."""

    permissions: Permissions
    gaps: tuple[str, ...] = ()
    """What this kernel does not enforce; always empty in strict mode."""

    @property
    def is_for_one_job(self) -> bool:
        """True when a process may not serve a second job: what the first used up counts against it."""
        return self.permissions.cpu_seconds is not None

    def apply(self, keep: Collection[int] = ()) -> None:
        """Confine the calling process for good; call it after a fork, with one thread, before the handler.

        Returns in a new process, the confined one: the caller stays behind as its keeper, outside, and ends
        the way it ended. So the caller's pid is the one to wait for, to signal (SIGTERM and the like are
        passed on) and to kill, by `tree.kill`. File descriptors are closed except 1, 2 and those in `keep`.
        """
        raise NotImplementedError


def prepare(permissions: Permissions, mode: Mode = "strict") -> Plan:
    """What has to be done for these permissions here. ConfigError when this kernel cannot enforce them."""
    raise NotImplementedError
