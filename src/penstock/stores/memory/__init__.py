"""The reference: the table of moves run over a dict. Survives nothing; for tests."""

from penstock.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
