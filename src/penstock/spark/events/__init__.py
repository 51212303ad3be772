"""The table `events`: the queues' event logs, in batch and as a stream."""
