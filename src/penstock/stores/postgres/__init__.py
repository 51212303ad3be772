"""The PostgreSQL store: one statement per move, guarded by the locks on the rows it changes."""

from penstock.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
