"""Checks of the store as a whole: replication, access to the tenant, rights of its files."""

from penstock.cli.doctor.check import Check
from penstock.stores.private_files import HasFiles, readable_by_others
from penstock.stores.protocol import HasTenantIsolation, Store
from penstock.stores.registry import StoreKind
from penstock.stores.values import Durability, StoreInfo


def examine_replication(info: StoreInfo) -> list[Check]:
    """Check what is lost when a primary is cut off from its replicas; no check without replicas."""
    found = info.replication
    if found is None or not (found.replicas or found.wait_replicas or found.min_replicas_to_write):
        return []
    check = Check(
        "replication",
        f"{found.replicas} replicas, wait_replicas {found.wait_replicas}, "
        f"min-replicas-to-write {found.min_replicas_to_write}",
    )
    if found.min_replicas_to_write:
        return [check]
    if found.wait_replicas:
        # No accepted job is lost, and jobs may run twice anyway: so this is no fault.
        check.seen += (
            "; a primary cut off from its replicas goes on with claims and results that a failover drops"
        )
        return [check]
    check.findings.append(
        "min-replicas-to-write is 0: a primary that is cut off from its replicas goes on accepting jobs, "
        "claims and results, and all of them are lost when a replica takes its place; "
        "set min-replicas-to-write to 1 on the server, and wait_replicas=1 in the url"
    )
    return [check]


async def examine_access(store: Store, tenant: str) -> list[Check]:
    """Check that the user of the URL may see the tenant; no check on stores without such access rules."""
    if not isinstance(store, HasTenantIsolation) or not await store.is_shut_out(tenant):
        return []
    return [
        Check(
            "tenant",
            tenant,
            findings=[
                f"the user of the url was not admitted to the tenant {tenant}, and sees none of its queues"
            ],
        )
    ]


def examine_files(store: Store) -> list[Check]:
    """Check that other users of the machine cannot read the store's files, if it has files."""
    if not isinstance(store, HasFiles):
        return []
    files = store.files()
    return [Check("files", ", ".join(each.name for each in files), findings=readable_by_others(files))]


def examine_persistence(info: StoreInfo) -> list[Check]:
    """Check that accepted jobs survive a restart of a Redis server; no check on other stores."""
    if info.kind != StoreKind.REDIS:
        return []
    check = Check("persistence", f"durability {info.durability}")
    if info.durability in (Durability.MEMORY, Durability.PROCESS):
        check.findings.append(
            "the server has appendonly off: a restart loses accepted jobs; "
            "set it with `CONFIG SET appendonly yes` and in the server's configuration"
        )
    return [check]
