"""The benchmark of readers of the event log."""
