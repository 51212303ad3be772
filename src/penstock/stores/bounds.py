"""How much one call to a store carries, and how long leases hold."""

from typing import Final

CLAIM_SCAN: Final = 200
"""Entries of jobs that are gone which one claim passes over."""
PROMOTE_LIMIT: Final = 200
RECOVER_LIMIT: Final = 200
PRUNE_LIMIT: Final = 200
RELAY_LIMIT: Final = 200
SCHEDULE_LIMIT: Final = 50
DUE_LIMIT: Final = 200
"""Queues that one call looks at for due upkeep."""
CLAIMABLE_LIMIT: Final = 1_000
"""Queues that a worker asks for in one call whether something is to be claimed."""
SWEEP_LIMIT: Final = 5_000
"""Rows of a deleted queue that are removed at a time."""
CHUNK_JOBS: Final = 1_000
CHUNK_BYTES: Final = 1 << 20
MAX_LEASE_MS: Final = 3_600_000
"""The longest lease. One that ends later than this from now is a clock fault and counts as expired."""
READER_LEASE_MS: Final = 7 * 24 * 3_600_000
"""How long a reader stays registered after it was last renewed."""
ENTRY_BYTES: Final = 64 * 1024
"""The largest body of a key-value entry."""
ENTRY_LIMIT: Final = 100
QUARANTINE_LIMIT: Final = 100
DAMAGED_EVENT_LIMIT: Final = 100
