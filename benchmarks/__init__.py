"""Penstock measured beside a peer, each in fresh processes on fresh files: `python -m benchmarks`."""
