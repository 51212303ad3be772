"""Penstock on SQLite beside Huey on SQLite."""
