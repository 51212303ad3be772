"""Handlers in processes that a fork server makes and a worker keeps."""
