"""Webhooks: signed messages about ended jobs, delivered at least once through a queue."""
