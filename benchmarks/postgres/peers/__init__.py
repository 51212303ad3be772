"""One module per peer: its tasks, as its own worker imports them, and how it enqueues."""
