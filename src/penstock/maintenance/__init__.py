"""Maintenance: the moves that no worker makes for a job of its own: promoting, recovering, pruning.

Every duty is harmless when many processes do it at once, and none of them is a leader. Begin reading in
`duties.py`, which names the duties of one queue, then in `loop.py`, which decides when a queue has its turn.
"""
