"""The moves that no worker makes for a job of its own: promote, recover, prune."""
