"""Tests of what only the Redis store has; the conformance suite tests what all stores have."""
