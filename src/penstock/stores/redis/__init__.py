"""Redis (7.0 or newer) and Valkey (8 or newer): one Lua script per move, one hash slot per queue."""

from penstock.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
