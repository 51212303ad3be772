"""`penstock doctor`: one module per subject of its checks; each returns `Check` values.

Begin reading in `doctor_command.py`, which runs the checks and prints them.
"""
