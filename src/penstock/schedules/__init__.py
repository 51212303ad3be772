"""Schedules: the ticker that fires them, and what people and apps do with them.

Each nominal instant makes at most one job, however many processes tick: the store refuses the second. Begin
reading in `ticker.py`; how an expression becomes instants is in `core/cron`.
"""
