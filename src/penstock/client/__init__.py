"""The client: from a call in the caller's code to a job in the store, and back to its result.

An enqueue that returned is durable, and a repeated one has the same id and nonce, so that the store has the
job once or not at all. Begin reading in `client.py`, then `producer.py` (ids, joined calls) and `retrying.py`
(repeats while the store is unavailable).
"""
