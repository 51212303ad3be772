"""The source of the tables `jobs` and `dlq`, read in batch.

The store's `scan` part has the statements; this package splits a scan into partitions and turns its rows into
Arrow batches. A job that changes while it is read appears in one of its states. Begin reading in `reader.py`.
"""
