"""The check of the quarantine, where the store keeps damaged records."""

from typing import Final

from penstock.cli.doctor.check import Check
from penstock.cli.output import local
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store

MAX_ENTRIES: Final = 1_000
"""Entries of the quarantine that are read of one queue."""


async def examine_quarantine(store: Store, ref: QueueRef) -> Check:
    """Check that the quarantine is empty: each entry is a finding until someone deletes it."""
    found = await store.quarantine.list_quarantined(ref, limit=MAX_ENTRIES)
    many = f"{len(found)}{' or more' if len(found) == MAX_ENTRIES else ''}"
    check = Check("quarantine", f"{many} entries", ref.name)
    check.findings = [
        f"{each.what}, quarantined at {local(each.at)} (job {each.id}): "
        f"see `penstock quarantine list --queue {ref.name}`"
        for each in found
    ]
    return check
