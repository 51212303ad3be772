"""Commands about the event log and its readers."""
