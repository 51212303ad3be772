"""What the database says of times that the clock was set back from."""

from typing import Final

from penstock.core.clocks import STEP_MS
from penstock.stores.bounds import MAX_LEASE_MS

FAR_LEASE: Final = (
    f"job.deadline > given.now + {STEP_MS} "
    f"AND job.deadline > given.now + coalesce(job.lease_ms, {MAX_LEASE_MS}) + {STEP_MS}"
)
"""Holds for a lease that has ended because the clock was set back."""
NOTE: Final = "SELECT penstock.note_clock($1::bigint)"
NOTE_SECONDS: Final = 60.0
"""How often upkeep keeps the newest time in the database."""
