"""The sink: a DataFrame's rows become jobs, or redrive, cancel or delete jobs.

Spark may run a task again, so every row has an idempotency key that does not depend on partitions or row
numbers. A bad row fails the write or goes to the quarantine folder, and never keeps others from being
written. Begin reading in `writers.py`, which Spark calls, then `partition.py` and `enqueueing.py`.
"""
