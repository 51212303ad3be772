"""One worker process over many idle queues: what it costs, and how soon a job in any of them starts."""
