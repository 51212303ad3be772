"""What `doctor` says of a server that keeps nothing on disk."""

from typing import Final

from penstock.cli.checks import Check
from penstock.stores.values import Durability, StoreInfo

SERVERS: Final = frozenset({"redis", "valkey"})


def examine_persistence(info: StoreInfo) -> list[Check]:
    """Whether accepted jobs survive a restart of a server in memory; nothing for other stores."""
    if info.kind not in SERVERS:
        return []
    check = Check("persistence", f"durability {info.durability}")
    if info.durability in (Durability.MEMORY, Durability.PROCESS):
        check.findings.append(
            "the server has appendonly off: a restart loses accepted jobs; "
            "set it with `CONFIG SET appendonly yes` and in the server's configuration"
        )
    return [check]
