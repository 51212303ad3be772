"""Claim, execute, settle: what runs jobs."""
