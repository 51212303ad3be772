"""The PostgreSQL store: one statement per move, guarded by the locks on the rows that it changes.

Claims skip locked rows, so that workers do not wait for each other; queues with limits serialise theirs.
Event logs are ordered by transaction id. Begin reading in `store.py`, then `moves.py` and `sql/moves/`.
"""

from penstock.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
