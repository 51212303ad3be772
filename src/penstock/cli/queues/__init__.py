"""Commands about queues: list, pause, limit, drain; and about their quarantine.

Begin reading in `queue_commands.py`.
"""
