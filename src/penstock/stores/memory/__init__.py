"""The memory store: the table of moves applied to a dict; the reference for the other stores, and for tests.

It loses everything when its process ends. Begin reading in `store.py`, then `moves.py`.
"""

from penstock.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
