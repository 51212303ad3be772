"""The HTTP service beside the direct client, on one SQLite file."""
