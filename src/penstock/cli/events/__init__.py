"""Commands about the event log and its readers.

Begin reading in `event_commands.py`.
"""
