"""Claim, execute, settle: the life of a job in a worker."""
