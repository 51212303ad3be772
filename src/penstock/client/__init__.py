"""Enqueue: from a call in the caller's code to a job in the store."""
