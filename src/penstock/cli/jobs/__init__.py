"""Commands about jobs: enqueue, list, change, explain; dead letters and flows.

Begin reading in `job_commands.py`; `job_selection.py` has the options that select jobs, for all commands that
change many.
"""
