"""The PostgreSQL store: one statement per move, guarded by the locks on the rows that it changes."""

from penstock.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
