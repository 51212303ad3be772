"""The moves that no worker makes: promote, reclaim, prune."""
