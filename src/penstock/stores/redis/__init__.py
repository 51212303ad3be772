"""Redis (7.0 or newer) and Valkey (8.0 or newer): one Lua script per move, one hash slot per queue.

All keys of a queue share a hash tag, so every script is cluster-safe; scripts get the numbers and reasons of
the core as arguments. Begin reading in `store.py`, then `moves.py`, `lua/moves/` and `codec/`, which has all
bytes of a record.
"""

from penstock.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
