"""Silver: one row per attempt and one per job and drive, merged batch by batch from the events of bronze.

Begin reading in `step.py`.
"""
