"""Guards that can be dropped without any test noticing, each with the reason why that changes nothing."""

from typing import Final

from penstock.core.moves import Move
from penstock.testing.conformance.cases import takes_token

_TOKEN_IMPLIES_ACTIVE: Final = (
    "a record has a token only while it is active, so the token's guard says it too"
)

_BY_TOKEN: Final[dict[tuple[str, str, str], str]] = {
    (store, move.value, "state"): _TOKEN_IMPLIES_ACTIVE
    for store in ("memory", "sqlite", "redis", "postgres")
    for move in Move
    if takes_token(move)
}

SURVIVORS: Final = _BY_TOKEN | {
    ("memory", "promote", "state"): "only delayed jobs stand in the heap that promote takes from",
    ("memory", "claim", "state"): "only pending jobs stand in the heap that claim takes from",
    ("sqlite", "promote", "state"): "only delayed jobs have a visible_at",
    ("postgres", "cancel", "state"): "only live jobs lie in the table that cancel reads",
    ("postgres", "prune", "state"): "only jobs that may be pruned lie in the table that prune reads",
    (
        "postgres",
        "replace",
        "state",
    ): "only what waits is replaced; a race is in stores/postgres/test_locks.py",
    ("postgres", "promote", "state"): "only delayed jobs have a visible_at",
    ("redis", "promote", "state"): "only delayed jobs stand in the index that promote reads",
    ("redis", "prune", "state"): "only jobs that may be pruned stand in the index that prune reads",
    **dict.fromkeys(
        [(store, "claim", "readies") for store in ("valkey", "redis7", "postgres", "postgres-debian")],
        "a claim moves or takes away the turn of the key it serves itself",
    ),
}
"""By store, move and guard."""
