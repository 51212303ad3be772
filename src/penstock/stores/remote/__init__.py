"""The store of a service elsewhere, reached over HTTP."""

from penstock.stores.remote.store import RemoteStore

__all__ = ["RemoteStore"]
