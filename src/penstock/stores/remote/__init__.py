"""The remote store: the store of a service elsewhere, reached over HTTP.

Its parts are made from the protocol: each call is one message of `stores/wire.py`, and the guarantees are
those of the store behind the service. Begin reading in `calls.py`, then `backend.py`.
"""

from penstock.stores.remote.store import RemoteStore

__all__ = ["RemoteStore"]
