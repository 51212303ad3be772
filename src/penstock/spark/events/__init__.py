"""The table `events`: the queues' event logs, in batch and as a stream.

A range between two cursors holds the same events whenever it is read, or fails: so tasks can be repeated, and
a checkpoint continues. Begin reading in `planning.py`, which cuts logs into ranges, then `reading.py` and
`stream.py`.
"""
