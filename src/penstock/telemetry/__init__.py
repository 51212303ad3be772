"""Logs, wrapped around the seams once."""
