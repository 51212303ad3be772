"""The duties that no job waits for."""
