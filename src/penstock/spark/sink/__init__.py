"""From rows to jobs: what a column means, keys, chunks, quarantine, and the writers that Spark calls."""
