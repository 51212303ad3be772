"""Flows and batches: graphs of jobs over several queues."""
