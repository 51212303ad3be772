"""When a schedule fires: cron expressions, time zones, intervals, and instants that were missed.

Pure functions of an expression and a time. Begin reading in `schedule.py`, which is what a store keeps;
`instants.py` computes the next times, also across clock changes, and `catch_up.py` selects missed ones.
"""
