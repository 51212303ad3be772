"""Commands about queues: list, pause, limit, drain; and about their quarantine."""
